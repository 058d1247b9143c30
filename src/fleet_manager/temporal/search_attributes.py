"""The search attributes of every workflow of ours: one list, which the bootstrap registers and nobody else spells."""

from __future__ import annotations

from temporalio.common import SearchAttributeKey

SITE = SearchAttributeKey.for_keyword("FleetSite")
NODE = SearchAttributeKey.for_keyword("FleetNode")
VERB = SearchAttributeKey.for_keyword("FleetVerb")
PHASE = SearchAttributeKey.for_keyword("FleetPhase")

ALL = (SITE, NODE, VERB, PHASE)
