"""Settings of all tests: no test is judged by the clock, for a busy machine is no fault of the code."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("vgpumgr", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("vgpumgr")
