//! `…/computer`: the display, the mouse, the keyboard and the clipboard of a session.

mod body;
mod clipboard;
mod control;
mod screenshot;

use self::{
    body::{Batch, ClickMouse, DragMouse, MoveMouse, PressKey, Scroll, SetCursor, TypeText},
    clipboard::{Clipboard, WriteClipboard, read_clipboard, write_clipboard},
    control::{CursorSet, MousePosition, batch, get_mouse_position, perform, set_cursor},
    screenshot::{Png, Screenshot, capture_screenshot},
};
use crate::operation::Operations;

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Computer", "The session does not exist");
    api.post("/browsers/{id}/computer/screenshot", "capture_screenshot", capture_screenshot)
        .summary("Returns a screenshot of the display or of a region of it.")
        .body::<Screenshot>()
        .content::<Png>(200, "image/png", "The picture, exactly of the region's size");
    api.post("/browsers/{id}/computer/clipboard/write", "write_clipboard", write_clipboard)
        .summary("Writes text to the clipboard.")
        .body::<WriteClipboard>()
        .no_content("Written");
    api.post("/browsers/{id}/computer/clipboard/read", "read_clipboard", read_clipboard)
        .summary("Returns the text on the clipboard.")
        .returns::<Clipboard>()
        .refuses([(413, "A page has put more than 8 MiB on the clipboard")]);
    api.post("/browsers/{id}/computer/click_mouse", "click_mouse", perform::<ClickMouse>)
        .summary("Clicks at a point.")
        .body::<ClickMouse>()
        .no_content("Done");
    api.post("/browsers/{id}/computer/move_mouse", "move_mouse", perform::<MoveMouse>)
        .summary("Moves the mouse to a point.")
        .body::<MoveMouse>()
        .no_content("Done");
    api.post("/browsers/{id}/computer/drag_mouse", "drag_mouse", perform::<DragMouse>)
        .summary("Presses a mouse button at the first point of a path, moves along the path and releases the button.")
        .body::<DragMouse>()
        .no_content("Done");
    api.post("/browsers/{id}/computer/scroll", "scroll", perform::<Scroll>)
        .summary("Turns the mouse wheel at a point.")
        .body::<Scroll>()
        .no_content("Done");
    api.post("/browsers/{id}/computer/press_key", "press_key", perform::<PressKey>)
        .summary("Presses keys.")
        .body::<PressKey>()
        .no_content("Done");
    api.post("/browsers/{id}/computer/type", "type_text", perform::<TypeText>)
        .summary("Types text exactly, whatever its language and the keyboard layout.")
        .body::<TypeText>()
        .no_content("Done");
    api.post("/browsers/{id}/computer/get_mouse_position", "get_mouse_position", get_mouse_position)
        .summary("Returns the position of the mouse.")
        .returns::<MousePosition>();
    api.post("/browsers/{id}/computer/cursor", "set_cursor", set_cursor)
        .summary("Hides or shows the mouse cursor in live views and recordings. Screenshots never show it.")
        .body::<SetCursor>()
        .returns::<CursorSet>();
    api.post("/browsers/{id}/computer/batch", "batch", batch)
        .summary(
            "Performs several actions in order. All are checked first; the first that fails ends the batch, and the message names it.",
        )
        .body::<Batch>()
        .no_content("All actions are done")
        .refuses([(400, "A field breaks a rule; nothing was done")])
        .fails("An action failed, `actions[3]: …`: those before it are done");
}
