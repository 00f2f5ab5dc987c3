"""Keeps proposals and their plans in a directory, so that a restart forgets nothing."""

from __future__ import annotations

import gzip
import logging
import re
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from balancer.approval.proposal import PENDING, ApprovalError, KeptProposal
from balancer.planning.document import PlanDocument
from cluster_model.files import write_atomically
from metrics_reporter.documents import first_problem, shown

log = logging.getLogger("counterpoise.approval")
_READ = 4

_DIGEST = re.compile("[0-9a-f]{64}")
_ID = re.compile("[1-9][0-9]{0,9}")
# Ids count the seconds since 2020, so that another controller, or one that has lost its directory,
# does not use one again: a client may still know it. They are signed 32-bit integers until 2088.
_FIRST_SECOND = 1_577_836_800
_HIGHEST = 2**31 - 1


class ProposalStore:
    """Proposals by id, the newest last.

    Parameters
    ----------
    directory
        Where records and plans are kept; made if it is missing. None keeps them in memory only.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._lock = threading.RLock()
        self._kept: dict[str, KeptProposal] = {}
        self._plans: dict[str, bytes] = {}
        self._last_id = 0
        # Plans that were read last: a page asks for one many times.
        self._read: OrderedDict[str, PlanDocument] = OrderedDict()
        self._reading = threading.Lock()
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            self._load(directory)

    def new_id(self, now: float) -> str:
        """An id that no proposal has had here; `now` in seconds since 1970."""
        with self._lock:
            second = int(now) - _FIRST_SECOND
            self._last_id = max(self._last_id + 1, second if second <= _HIGHEST else 0)
            return str(self._last_id)

    def all(self) -> tuple[KeptProposal, ...]:
        """The proposals, the oldest first."""
        with self._lock:
            return tuple(self._kept.values())

    def get(self, identity: str) -> KeptProposal:
        """A proposal by its id.

        Raises
        ------
        ApprovalError
            If there is none.
        """
        with self._lock:
            found = self._kept.get(identity)
        if found is None:
            raise ApprovalError(
                f"proposal {shown(identity)}: not found; it may have been removed to make room",
                missing=True,
            )
        return found

    def plan_text(self, identity: str) -> str:
        """The plan of a proposal, as in a plan file.

        Raises
        ------
        ApprovalError
            If there is none, or its file cannot be read.
        """
        kept = self.get(identity)
        with self._lock:
            packed = self._plans.get(identity)
        try:
            if packed is None:
                assert self._directory is not None
                packed = self._plan_file(identity).read_bytes()
            return gzip.decompress(packed).decode()
        except (OSError, EOFError, UnicodeError, zlib.error) as error:
            raise ApprovalError(
                f"proposal {kept.id}: its plan cannot be read: {error}", missing=True
            ) from None

    def plan(self, identity: str) -> PlanDocument:
        """The plan of a proposal, checked against the digest that was approved.

        Raises
        ------
        ApprovalError
            If there is none, or it is not the plan of the record.
        """
        kept = self.get(identity)
        if (known := self._known(identity)) is not None:
            return known
        # One after another: who asks for the same plan meanwhile gets what the first one read.
        with self._reading:
            return self._known(identity) or self._read_plan(kept)

    def _known(self, identity: str) -> PlanDocument | None:
        with self._lock:
            if (known := self._read.get(identity)) is not None:
                self._read.move_to_end(identity)
            return known

    def _read_plan(self, kept: KeptProposal) -> PlanDocument:
        identity = kept.id
        try:
            document = PlanDocument.model_validate_json(self.plan_text(identity))
        except ValidationError as error:
            raise ApprovalError(
                f"proposal {kept.id}: its plan cannot be read: {first_problem(error)}"
            ) from None
        if document.content_digest != kept.digest:
            raise ApprovalError(
                f"proposal {kept.id}: its plan was changed after it was made: digest "
                f"{kept.digest[:12]} stated, {document.content_digest[:12]} found; propose again"
            )
        with self._lock:
            self._read[identity] = document
            while len(self._read) > _READ:
                self._read.popitem(last=False)
        return document

    def add(self, proposal: KeptProposal, plan: str, keep: int) -> None:
        """Keep a new proposal and its plan; the oldest that can no longer change make room."""
        packed = gzip.compress(plan.encode(), 1)
        with self._lock:
            if self._directory is None:
                self._plans[proposal.id] = packed
            else:
                write_atomically(self._plan_file(proposal.id), lambda f: f.write(packed))
            self._put(proposal)
            ended = [p.id for p in self._kept.values() if p.state not in (*PENDING, "executing")]
            for old in ended[: max(0, len(self._kept) - keep)]:
                self._remove(old)

    def change(
        self, identity: str, change: Callable[[KeptProposal], dict[str, Any]]
    ) -> KeptProposal:
        """Change fields of a proposal as one step; an exception of `change` changes nothing.

        Raises
        ------
        ApprovalError
            If there is none, or its record cannot be written; then nothing is changed.
        """
        with self._lock:
            kept = self.get(identity)
            changed = kept.model_copy(update=change(kept))
            try:
                self._put(changed)
            except OSError as error:
                raise ApprovalError(
                    f"proposal {kept.id}: its record cannot be written: {error.strerror or error}"
                ) from None
            return changed

    def end(self, identity: str, fields: dict[str, Any]) -> KeptProposal:
        """Change fields of a proposal whose execution has ended, even if nothing can be written.

        After a restart, a proposal whose end was not written is ``interrupted``.
        """
        with self._lock:
            changed = self.get(identity).model_copy(update=fields)
            try:
                self._put(changed)
            except OSError as error:
                log.error("proposal %s: its end cannot be written: %s", changed.id, error)
                self._kept[changed.id] = changed
            return changed

    def _put(self, proposal: KeptProposal) -> None:
        if self._directory is not None:
            text = proposal.model_dump_json(indent=1)
            write_atomically(
                self._directory / f"{proposal.id}.json", lambda f: f.write(text.encode())
            )
        self._kept[proposal.id] = proposal

    def _remove(self, identity: str) -> None:
        del self._kept[identity]
        self._plans.pop(identity, None)
        self._read.pop(identity, None)
        if self._directory is not None:
            (self._directory / f"{identity}.json").unlink(missing_ok=True)
            self._plan_file(identity).unlink(missing_ok=True)

    def _plan_file(self, identity: str) -> Path:
        assert self._directory is not None
        return self._directory / f"{identity}.plan.json.gz"

    def _load(self, directory: Path) -> None:
        found = []
        for path in directory.glob("*.json"):
            try:
                if not _ID.fullmatch(path.stem) or int(path.stem) > _HIGHEST:
                    raise ValueError("its name is no id")
                # an id is used once, even if its record cannot be read
                self._last_id = max(self._last_id, int(path.stem))
                record = KeptProposal.model_validate_json(path.read_bytes())
                if path.stem != record.id or not _DIGEST.fullmatch(record.digest):
                    raise ValueError("it is the record of another proposal")
                found.append(record)
            except (OSError, ValueError) as error:
                log.warning(
                    "proposals: %s is ignored, since it cannot be read (%s)",
                    path,
                    type(error).__name__,
                )
        for proposal in sorted(found, key=lambda p: int(p.id)):
            if proposal.state == "executing":
                # Its process has ended; the journal of executions knows how far it came.
                proposal = proposal.model_copy(update={"state": "interrupted"})
            self._kept[proposal.id] = proposal
