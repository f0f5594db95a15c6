"""From a question (sweep this, drop that) to a plan: one listing, the manifests that it asks for, a judgement.

The same question can be asked again: an execution makes a second plan, and takes only what stands in both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import trio

from holdfast.checkpoints.hooks.reading import read_all
from holdfast.checkpoints.hooks.stored import DROP, SWEEP, Header, StoredPlan, StoredPolicy, items_of, kept_of
from holdfast.checkpoints.hooks.survey import Survey, surveyed
from holdfast.checkpoints.layouts import FlinkKind, FlinkName, parse_flink
from holdfast.checkpoints.reachability import (
    Examination,
    Found,
    Plan,
    Policy,
    batch_of,
    census,
    drop,
    drop_batches,
    sweep,
    up_to,
)
from holdfast.errors import PlanError
from holdfast.transfer import RemoteAccess


@dataclass(frozen=True, slots=True)
class Question:
    """What a plan is to be made of. ``checkpoints`` are relative to ``root``; only a drop has them."""

    kind: str
    root: str
    policy: Policy
    checkpoints: tuple[str, ...] = ()

    @classmethod
    def of(cls, header: Header) -> Question:
        """Return the question that a stored plan answers."""
        return cls(header.kind, header.root, header.policy.policy(), tuple(header.checkpoints))


async def make(access: RemoteAccess, question: Question) -> tuple[Plan, Survey]:
    """Make a plan. Raises ``RemoteError`` when the store does not answer, ``PlanError`` for what can't be dropped."""
    survey = await surveyed(access, question.root)
    return await _judged(access, question, survey), survey


async def make_drop(access: RemoteAccess, name: str, root: str | None, *, all_before: bool) -> tuple[Question, Plan, Survey]:
    """Make the plan to drop the checkpoint ``name`` (a key), with ``all_before`` all up to it too.

    What other checkpoints below ``root`` refer to stays; by default that is the directory of the job's directory, in which
    its siblings lie. Raises ``PlanError`` when there is no such checkpoint.
    """
    batch = batch_of(name.encode())
    flink = parse_flink(f"{name}/_metadata".encode())
    if batch is not None:
        root = batch[0].decode()
        survey = await surveyed(access, root)
        question = Question(DROP, root, Policy(), _batch(survey, batch[1], all_before=all_before))
    elif isinstance(flink, FlinkName) and flink.kind is FlinkKind.METADATA:
        root = flink.job.rpartition(b"/")[0].decode() if root is None else root
        if root and not name.startswith(f"{root}/"):
            raise PlanError(f"{name} does not lie below {root}")
        survey = await surveyed(access, root)
        relative = name[len(root) + 1 :] if root else name
        question = Question(DROP, root, Policy(), _checkpoints(survey, relative, all_before=all_before))
    else:
        raise PlanError(
            f"{name or 'the store'} is no checkpoint: name the directory chk-<n> of a job, or commits/<n> of a Spark query "
            "('holdfast checkpoint ls' shows what there is); savepoints are never touched"
        )
    return question, await _judged(access, question, survey), survey


async def take_census(access: RemoteAccess, root: str) -> list[Found]:
    """Return the checkpoints below ``root``. Raises ``RemoteError``."""
    survey = await surveyed(access, root)
    return await trio.to_thread.run_sync(census, survey.listing)


def stored(plan: Plan, survey: Survey, question: Question, *, plan_id: str, zone: str, store: str) -> StoredPlan:
    """Return the stored form of a plan."""
    items = items_of(plan, survey.etags)
    header = Header(
        id=plan_id,
        kind=question.kind,
        zone=zone,
        root=question.root,
        store=store,
        made_ns=survey.began_ns,
        policy=StoredPolicy.of(question.policy),
        checkpoints=list(question.checkpoints),
        kept=kept_of(plan.kept),
        count=len(items),
        size_bytes=sum(item.size_bytes for item in items),
    )
    return StoredPlan(header, items)


async def _judged(access: RemoteAccess, question: Question, survey: Survey) -> Plan:
    """Judge in a thread: a large listing takes seconds."""
    examination = await trio.to_thread.run_sync(_judge(question, survey))
    while examination.wanted:
        answers = await read_all(access, question.root, examination.wanted)
        await trio.to_thread.run_sync(examination.supply, answers)
    return examination.result


def _judge(question: Question, survey: Survey) -> Callable[[], Examination[Plan]]:
    listing, now_ns = survey.listing, survey.began_ns
    if question.kind == SWEEP:
        return lambda: sweep(listing, question.policy, now_ns)
    batches = [batch for name in question.checkpoints if (batch := batch_of(name.encode())) is not None]
    if batches:
        return lambda: drop_batches(listing, batches[0][0], batches[0][1], now_ns)
    names = [name.encode() for name in question.checkpoints]
    return lambda: drop(listing, names, now_ns)


def _batch(survey: Survey, number: int, *, all_before: bool) -> tuple[str, ...]:
    numbers = [batch[1] for each in survey.listing if (batch := batch_of(each.name)) is not None and not batch[0]]
    if number not in numbers:
        raise PlanError(f"there is no batch {number}: neither commits/{number} nor offsets/{number}")
    if not all_before and min(numbers) < number:
        raise PlanError(f"batch {number} goes only with all before it, for a query's log must have no gaps: use --up-to")
    return (f"commits/{number}",)


def _checkpoints(survey: Survey, name: str, *, all_before: bool) -> tuple[str, ...]:
    found = up_to(survey.listing, name.encode())
    if name.encode() not in found:
        raise PlanError(f"there is no checkpoint {name}: nothing of it is in the store")
    return tuple(sorted(each.decode() for each in found)) if all_before else (name,)
