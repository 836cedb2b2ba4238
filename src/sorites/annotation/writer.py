"""Write many requests in few transactions: those that come while one reaches the disk go with the next.

A request is answered after the transaction that holds it is on the disk, so that what was acknowledged is kept whatever happens.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sorites.annotation.store import writing
from sorites.errors import SoritesError

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], Any]
Outcome = tuple[Any, Exception | None]
MOST = 256
"""The most jobs of one transaction."""


class Writer:
    """The only writer of a labelling in this process: a thread, one transaction after the other."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.database = database
        self._jobs: list[tuple[Job, asyncio.Future[Any]]] = []
        self._task: asyncio.Task[None] | None = None

    async def do(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job inside a transaction, and return what it returns once that is on the disk; its error undoes it alone."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.append((job, future))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        while self._jobs:
            some, self._jobs = self._jobs[:MOST], self._jobs[MOST:]
            outcomes = await asyncio.to_thread(self._write, [job for job, _ in some])
            for (_, future), (value, error) in zip(some, outcomes, strict=True):
                if future.done():
                    continue  # whoever asked is gone
                future.set_result(value) if error is None else future.set_exception(error)
        self._task = None

    def _write(self, jobs: Sequence[Job]) -> list[Outcome]:
        try:
            with writing(self.database):
                return [self._one(job) for job in jobs]
        except Exception as error:  # the transaction itself failed, as on a full disk: nothing of it is kept
            return [(None, error)] * len(jobs)

    def _one(self, job: Job) -> Outcome:
        try:
            with writing(self.database):
                return job(self.database), None
        except (SoritesError, sqlite3.Error) as error:
            return None, error

    async def finish(self) -> None:
        """Wait for what is under way."""
        if self._task is not None:
            await self._task
