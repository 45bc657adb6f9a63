// half-step
