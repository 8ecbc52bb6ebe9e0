"""The Infer-Controller: PushText in, PullText out, the fence in between. It keeps nothing but caches."""
