"""A no with its cause and its way out: what every refusal of ours is made of."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Refusal(BaseModel):
    """Why something is not done, for machines (code) and for people (why, way_out).

    `code` becomes the type of the workflow's failure, so it is part of the contract: CamelCase, never renamed.
    """

    model_config = ConfigDict(frozen=True)

    code: str
    why: str
    way_out: str = ""

    def sentence(self) -> str:
        return f"{self.why} {self.way_out}".strip()
