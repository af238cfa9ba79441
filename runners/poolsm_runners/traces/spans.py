"""Events, commands and requests as spans."""

from __future__ import annotations

from opentelemetry import context, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, TracerProvider

from poolsm import Step, __version__
from poolsm.answers import ALREADY, DONE, GONE, classify, describe
from poolsm.commands import Command
from poolsm.events import CallAnswered, CommandsDispatched, Event
from poolsm.state import State
from poolsm_runners.clock import Clock
from poolsm_runners.cloud.operations import operation
from poolsm_runners.cloud.port import Projects, Reply, Transport, TransportError
from poolsm_runners.engine import Engine, Watcher

UNANSWERED = "the runner ended before its answer"


class Traces:
    """The spans of one run. All times are the runner's clock's."""

    def __init__(self, provider: TracerProvider, clock: Clock) -> None:
        self.tracer: Tracer = provider.get_tracer("poolsm", __version__)
        self._clock = clock
        self._commands: dict[str, tuple[str, Span]] = {}  # of each in flight: kind, span

    def now_ns(self) -> int:
        """The runner's time, as spans have it."""
        return self._clock.now_ms() * 1_000_000

    def transport(self, inner: Transport) -> Transport:
        """The transport, traced."""
        return TracedTransport(inner, self)

    def watcher(self, engine: Engine) -> Watcher:
        """A watcher of one epoch; what the one before left open ends without an answer."""
        self.end_all()

        def watch(event: Event, step: Step) -> None:
            if step.commands:
                self._begin(event, step, engine.state)
            elif isinstance(event, CommandsDispatched):
                self._dispatched(event, step)
            if isinstance(event, CallAnswered):
                self._answered(event, step)

        return watch

    def end_all(self) -> None:
        """Nobody waits any more for the answers to what is in flight."""
        for _, span in self._commands.values():
            span.set_status(Status(StatusCode.ERROR, UNANSWERED))
            span.end(self.now_ns())
        self._commands.clear()

    def _begin(self, event: Event, step: Step, state: State) -> None:
        position, began_ns = step.entries[-1].position, event.at_ms * 1_000_000
        cause = self.tracer.start_span(
            type(event).__name__,
            context=context.Context(),  # a trace of its own, whatever task this runs in
            start_time=began_ns,
            attributes={"poolsm.position": position},
        )
        inside = trace.set_span_in_context(cause, context.Context())
        for command in step.commands:
            kind = type(command).__name__
            span = self.tracer.start_span(
                kind,
                context=inside,
                start_time=began_ns,
                attributes={"poolsm.position": position, **_attributes(command, state)},
            )
            self._commands[command.command_id] = (kind, span)
        cause.end(self.now_ns())

    def _dispatched(self, event: CommandsDispatched, step: Step) -> None:
        for command_id in event.command_ids:
            if command_id in self._commands:
                _, span = self._commands[command_id]
                attributes = {"poolsm.position": step.entries[-1].position}
                span.add_event("dispatched", attributes, event.at_ms * 1_000_000)
                # This runs in the command's own task, which ends with its answer: from here on
                # every request of that task belongs to it.
                context.attach(trace.set_span_in_context(span))

    def _answered(self, event: CallAnswered, step: Step) -> None:
        kind, span = self._commands.pop(event.command_id, ("", trace.INVALID_SPAN))
        if not kind:
            return
        outcome = classify(kind, event)
        span.set_attribute("poolsm.outcome", outcome.kind)
        span.set_attribute("poolsm.answer.position", step.entries[-1].position)
        if event.server_id:
            span.set_attribute("poolsm.server_id", event.server_id)
        if event.http_status is not None:
            span.set_attribute("http.response.status_code", event.http_status)
        if outcome.kind not in {DONE, ALREADY, GONE}:
            span.set_status(Status(StatusCode.ERROR, event.unmet or describe(event)))
        span.end(event.at_ms * 1_000_000)


class TracedTransport:
    """A :class:`~poolsm_runners.cloud.port.Transport` whose requests for commands are spans.

    Listings of no command, one every few seconds, are left out.
    """

    def __init__(self, inner: Transport, traces: Traces) -> None:
        self._inner = inner
        self._traces = traces

    async def projects(self) -> Projects:
        """As the inner one."""
        return await self._inner.projects()

    async def request(
        self,
        project: str,
        service: str,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        deadline_s: float,
        once: bool = False,
    ) -> Reply:
        """As the inner one."""
        if not trace.get_current_span().is_recording():
            return await self._inner.request(
                project, service, method, path, body=body, deadline_s=deadline_s, once=once
            )
        span = self._traces.tracer.start_span(
            operation(service, method, path),
            kind=SpanKind.CLIENT,
            start_time=self._traces.now_ns(),
            attributes={
                "peer.service": service,
                "http.request.method": method,
                "url.path": path.partition("?")[0],
                "poolsm.project": project,
            },
        )
        try:
            reply = await self._inner.request(
                project, service, method, path, body=body, deadline_s=deadline_s, once=once
            )
        except TransportError as error:
            span.set_attribute("error.type", error.kind)
            span.set_status(Status(StatusCode.ERROR, error.message))
            raise
        else:
            span.set_attribute("http.response.status_code", reply.status)
            if reply.status >= 400:
                span.set_status(Status(StatusCode.ERROR))
            return reply
        finally:
            span.end(self._traces.now_ns())

    async def close(self) -> None:
        """As the inner one."""
        await self._inner.close()


def _attributes(command: Command, state: State) -> dict[str, str]:
    op = state.ops.get(command.command_id)
    vm = state.vms.get(op.vm) if op else None
    found = {
        "poolsm.command_id": command.command_id,
        "poolsm.pool": str(op.pool) if op and op.pool.serverpool_id else "",
        "poolsm.vm": vm.name if vm else "",
        "poolsm.server_id": str(getattr(command, "server_id", "")),
        "poolsm.rule": command.reason.rule,
        "poolsm.reason": command.reason.text,
    }
    return {name: value for name, value in found.items() if value}
