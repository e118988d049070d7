"""How cards shall be cut: one record per card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import select

from vgpumgr.model.records import CardSetup
from vgpumgr.store.models import CardSetupRow
from vgpumgr.store.session import Sessions


class CardSetups:
    """What was asked for of each card of one host."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def all(self) -> Sequence[CardSetup]:
        """Every card's, by address."""
        query = (
            select(CardSetupRow)
            .where(CardSetupRow.host_id == self._sessions.host_id)
            .order_by(CardSetupRow.address)
        )
        with self._sessions.transaction() as session:
            return [_setup(row) for row in session.scalars(query)]

    def get(self, address: str) -> CardSetup | None:
        """One card's; ``None`` when nothing was asked for."""
        with self._sessions.transaction() as session:
            row = session.get(CardSetupRow, (self._sessions.host_id, address))
            return _setup(row) if row is not None else None

    def put(self, setup: CardSetup) -> None:
        """Remember a card's, in the place of an earlier one."""
        values = asdict(setup)
        address, fingerprint = values.pop("address"), values.pop("fingerprint")
        with self._sessions.transaction() as session:
            session.merge(
                CardSetupRow(
                    host_id=self._sessions.host_id,
                    address=address,
                    fingerprint=fingerprint,
                    setup={key: value for key, value in values.items() if value is not None},
                    created_at=self._sessions.now(),
                )
            )

    def remove(self, address: str) -> None:
        """Forget a card's; one that is not there is fine."""
        with self._sessions.transaction() as session:
            row = session.get(CardSetupRow, (self._sessions.host_id, address))
            if row is not None:
                session.delete(row)


def _setup(row: CardSetupRow) -> CardSetup:
    values = dict(row.setup)
    layout = values.pop("layout", None)
    return CardSetup(row.address, row.fingerprint, layout=tuple(layout) if layout is not None else None, **values)
