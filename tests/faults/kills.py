"""Kill a verb at moments spread over all its changes of files, check what is left, and repeat the verb."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults import killing, verbs

from sorites.core.errors import Damaged, SoritesError


@dataclass
class Killed:
    """What kills of a verb led to.

    Attributes:
        moments: Changes of files by the verb.
        kills: Those before which it was killed.
        unfinished: Kills after which ``check`` said that the folder is incomplete.
        wrong: Kills after which ``check`` called a file damaged, or the repeated verb ended with other files.
    """

    moments: int = 0
    kills: int = 0
    unfinished: int = 0
    wrong: list[str] = field(default_factory=list)


def killed_verbs(root: Path, stack: ExitStack) -> Iterator[verbs.Verb]:
    """Yield all verbs that write folders; ``root`` is the working directory."""
    yield from verbs.verbs(root)
    yield stack.enter_context(verbs.collection(root))
    yield stack.enter_context(verbs.capture(root))


def killed(verb: verbs.Verb, into: Path, most: int) -> Killed:
    """Kill a verb at up to ``most`` moments, and repeat it each time."""
    verb.prepare()
    copies = killing.moments(verb.run, verb.folder, into / verb.name)
    whole, found = verbs.state(verb), Killed(moments=len(copies))
    assert whole
    for copy in killing.chosen(copies, most):
        killing.put_back(copy, verb.folder)
        found.kills += 1
        try:
            verb.check(verb.folder)
        except Damaged as error:
            found.wrong.append(f"{copy.name}: {error}")
        except SoritesError:
            found.unfinished += 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            verb.run()
        now = verbs.state(verb)
        verb.check(verb.folder)
        differ = sorted(name for name in {*now, *whole} if now.get(name) != whole.get(name))
        if differ:
            found.wrong.append(f"{copy.name}: {', '.join(differ[:3])}")
    return found
