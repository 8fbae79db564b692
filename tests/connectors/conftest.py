"""Property tests here are about answers: how long one example takes on a busy machine says nothing."""

from hypothesis import HealthCheck, settings

from tiers import examples

settings.register_profile(
    "connectors", deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("connectors")
