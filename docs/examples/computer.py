"""Copies all the text of a page with mouse and keyboard, as a person would, with the public Python client.

    pip install kernel==0.80.0
    CASEMENT_KEY=… python computer.py [URL]

It prints the text, and leaves screen.png where it runs.
"""
import os
import sys

from kernel import Kernel

client = Kernel(
    base_url=os.environ.get("CASEMENT_URL", "http://127.0.0.1:8080"),  # all that points it to Casement
    api_key=os.environ["CASEMENT_KEY"],
)
url = sys.argv[1] if len(sys.argv) > 1 else "https://example.com"

session = client.browsers.create(start_url="about:blank")  # with a display, for the address bar
id, computer = session.session_id, client.browsers.computer
try:
    # The address bar takes text like any other field, and so it would on a screen.
    computer.batch(
        id,
        actions=[
            {"type": "press_key", "press_key": {"keys": ["Ctrl+l"]}},
            {"type": "type_text", "type_text": {"text": url + "\n"}},
        ],
    )
    for _ in range(60):  # until the page is there: before that, there is nothing to copy
        computer.batch(
            id,
            actions=[
                {"type": "sleep", "sleep": {"duration_ms": 1000}},
                {"type": "move_mouse", "move_mouse": {"x": 900, "y": 700, "smooth": True}},
                {"type": "click_mouse", "click_mouse": {"x": 900, "y": 700}},
                {"type": "press_key", "press_key": {"keys": ["Ctrl+a", "Ctrl+c"]}},
            ],
        )
        text = computer.read_clipboard(id).text
        if text:
            break
    computer.capture_screenshot(id).write_to_file("screen.png")
    print(text)
finally:
    client.browsers.delete_by_id(id)
