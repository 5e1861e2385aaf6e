"""computer.py SESSION FRAME: the public Python client, unmodified, on every call of computer control.

The session shows the page with a form; FRAME is what its window has above the page, in pixels.
"""
import json
import os
import sys
import time

import kernel
from kernel import Kernel

id, frame = sys.argv[1], int(sys.argv[2])
client = Kernel(base_url=os.environ["CASEMENT_URL"], api_key=os.environ["CASEMENT_KEY"], max_retries=0, timeout=300)
computer = client.browsers.computer
TEXT = "aZ ~@ äöüß€ 漢字 😀 e\u0301 \u202ex\u202c"
saw = {}


def refused(call):
    try:
        call()
    except kernel.APIStatusError as error:
        return [type(error).__name__, error.body["code"], [one["message"].split(":")[0] for one in error.body.get("details", [])]]
    return "not refused"


def copied(instead_of):
    """Returns the clipboard once it has changed: the page copies some time after the keys."""
    deadline = time.monotonic() + 120
    while (text := computer.read_clipboard(id).text) == instead_of and time.monotonic() < deadline:
        time.sleep(0.05)
    return text


computer.click_mouse(id, x=100, y=frame + 70)
computer.type_text(id, text="first")
computer.type_text(id, text="!", delay=5)
computer.press_key(id, keys=["BackSpace"])
computer.press_key(id, keys=["Ctrl+A", "Ctrl+C"])
saw["copied"] = copied(instead_of="")
computer.type_text(id, text=TEXT)
computer.press_key(id, keys=["a", "c"], hold_keys=["Ctrl"])
typed = copied(instead_of="first")
saw["typed and copied"] = typed == TEXT or typed
computer.write_clipboard(id, text="Zoë")
computer.press_key(id, keys=["Ctrl+v"], duration=20)

computer.move_mouse(id, x=500, y=frame + 400, smooth=True, duration_ms=100)
position = computer.get_mouse_position(id)
saw["position"] = [position.x, position.y - frame]
computer.drag_mouse(id, path=[[500, frame + 400], [520, frame + 420], [540, frame + 400]], button="left", delay=5, step_delay_ms=1, steps_per_segment=3)
computer.drag_mouse(id, path=[[500, frame + 400], [540, frame + 400]], smooth=True, duration_ms=50)
computer.scroll(id, x=500, y=frame + 400, delta_y=2, delta_x=-1)
computer.click_mouse(id, x=500, y=frame + 400, button="right", click_type="down")
computer.click_mouse(id, x=500, y=frame + 400, button="right", click_type="up")
computer.press_key(id, keys=["Escape"])
saw["cursor"] = computer.set_cursor_visibility(id, hidden=True).ok
computer.batch(
    id,
    actions=[
        {"type": "set_cursor", "set_cursor": {"hidden": False}},
        {"type": "sleep", "sleep": {"duration_ms": 5}},
        {"type": "move_mouse", "move_mouse": {"x": 10, "y": frame + 10}},
        {"type": "scroll", "scroll": {"x": 10, "y": frame + 10, "delta_y": -2}},
        {"type": "drag_mouse", "drag_mouse": {"path": [[500, frame + 400], [510, frame + 410]], "step_delay_ms": 1}},
        {"type": "press_key", "press_key": {"keys": ["Escape"]}},
        {"type": "click_mouse", "click_mouse": {"x": 100, "y": frame + 180}},
    ],
)
picture = computer.capture_screenshot(id, region={"x": 0, "y": frame, "width": 300, "height": 200}).read()
saw["picture"] = [picture[:4] == b"\x89PNG", int.from_bytes(picture[16:20], "big"), int.from_bytes(picture[20:24], "big")]

long = "ä漢😀x" * (2**20 // 10)
computer.write_clipboard(id, text=long)
saw["a megabyte"] = computer.read_clipboard(id).text == long
computer.write_clipboard(id, text="")
saw["nothing"] = computer.read_clipboard(id).text

saw["key"] = refused(lambda: computer.press_key(id, keys=["Ctrl+Nope"]))
saw["place"] = refused(lambda: computer.click_mouse(id, x=100_000, y=-1))
saw["batch"] = refused(lambda: computer.batch(id, actions=[{"type": "sleep", "sleep": {"duration_ms": 1}}, {"type": "scroll"}]))
saw["clipboard"] = refused(lambda: computer.write_clipboard(id, text="x" * (2**20 + 1)))
saw["control"] = refused(lambda: computer.type_text(id, text="\0"))
saw["session"] = refused(lambda: computer.get_mouse_position("nobody"))
print(json.dumps(saw))
