"""Dispatch: stateless peer replicas that place lives on Workers, and the API around it (paper, sections 5, 7.2)."""
