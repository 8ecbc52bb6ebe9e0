"""What tests share: servers and stores, deployments in one process or several, runtimes, faults. No tests are here."""
