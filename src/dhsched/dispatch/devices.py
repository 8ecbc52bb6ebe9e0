"""The devices of Workers: kept in the store as each Worker reports them, for people.

A Worker chooses the device of each session itself, and decides itself which device has had too many crashes
(worker/devices.py): it sees every crash, and needs no round trip before the next session starts.
"""

from __future__ import annotations

from dhsched.client.models.workers import DeviceOut
from dhsched.dispatch.context import DispatchContext
from dhsched.links.messages import DeviceList
from dhsched.store.records.workers import DeviceRow
from dhsched.types import check_id


async def note_devices(context: DispatchContext, worker: str, said: DeviceList) -> None:
    """Keep a Worker's devices, and write an event for each device that is blamed now and was not before."""
    rows = [DeviceRow(check_id(each.name, "device"), each.crashes, each.blamed) for each in said.devices]
    before = await context.store.records.workers.put_devices(worker, rows)
    blamed = {row.name for row in before if row.blamed}
    for row in rows:
        if row.blamed and row.name not in blamed:
            context.events.say("device_blamed", worker=worker, device=row.name, crashes=row.crashes, devices=len(rows))


def devices_out(rows: list[DeviceRow]) -> list[DeviceOut]:
    return [DeviceOut(*row) for row in rows]


async def device_of(context: DispatchContext, live: str, worker: str, epoch: int) -> str:
    """Return the device of a live's generation: the device that its claim named, or its Worker's only device."""
    if claimed := await context.records.lives.device(live, epoch):
        return claimed
    devices = await context.records.workers.devices(worker)
    return devices[0].name if len(devices) == 1 else ""
