"""What a model costs before it is trained: `partwise size`, for the calculator."""

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from partwise.machine import measured
from partwise.model.config import ModelConfig
from partwise.model.presets import preset, preset_names
from partwise.model.sizing import Workload, size
from partwise.settings import build, options, plain
from partwise.studio.answers import Json, body, field
from partwise.studio.state import State


def routes(state: State) -> list[BaseRoute]:
    """`GET /api/presets`, `POST /api/size`."""

    def presets(request: Request) -> Response:
        return Json([{"name": name, "model": plain(preset(name))} for name in preset_names()])

    async def cost(request: Request) -> Response:
        return Json(await run_in_threadpool(_size, await body(request)))

    return [Route("/api/presets", presets), Route("/api/size", cost, methods=["POST"])]


def _size(sent: dict[str, Any]) -> dict[str, Any]:
    name = field(sent, "preset", str, "small")
    model = build(ModelConfig, field(sent, "model", dict, {}), preset(name))
    asked = {key: sent[key] for key in options(Workload) if key in sent}
    workload = build(Workload, asked)
    speed = {}
    if workload.accelerator is None:
        here = measured()
        flops = here.bfloat16_flops if workload.dtype == "bfloat16" else here.float32_flops
        speed = {"here_flops": flops, "here_bandwidth": here.memory_bandwidth}
    found = size(model, workload, **speed)
    return {"schema": 1, "name": name, **found.as_dict()}
