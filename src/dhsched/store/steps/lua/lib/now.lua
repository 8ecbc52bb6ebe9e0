-- now: most steps decide by the store's time, and all of those read it once, here.
now = clock()
