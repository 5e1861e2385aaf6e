//! `…/computer`: the display, the mouse, the keyboard and the clipboard of a session.

mod body;
mod clipboard;
mod control;
mod screenshot;

use casement_domain::computer::ActionRequest;
use serde::de::DeserializeOwned;

use self::{
    body::{Batch, ClickMouse, DragMouse, MoveMouse, PressKey, Scroll, SetCursor, TypeText},
    clipboard::{Clipboard, WriteClipboard},
    control::{CursorSet, MousePosition},
    screenshot::{Png, Screenshot},
};
use crate::{operation::Operations, schema::ToSchema};

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Computer", "The session does not exist");
    api.post("/browsers/{id_or_name}/computer/screenshot", "capture_screenshot", screenshot::capture_screenshot)
        .summary("Returns a screenshot of the display or of a region of it.")
        .body::<Screenshot>()
        .content::<Png>("200", "image/png", "The picture, exactly of the region's size");
    api.post("/browsers/{id_or_name}/computer/clipboard/write", "write_clipboard", clipboard::write_clipboard)
        .summary("Writes text to the clipboard.")
        .body::<WriteClipboard>()
        .no_content("Written");
    api.post("/browsers/{id_or_name}/computer/clipboard/read", "read_clipboard", clipboard::read_clipboard)
        .summary("Returns the text on the clipboard.")
        .returns::<Clipboard>()
        .refuses([("413", "A page has put more than 8 MiB on the clipboard")]);
    action::<ClickMouse>(api, "/browsers/{id_or_name}/computer/click_mouse", "click_mouse", "Clicks at a point.");
    action::<MoveMouse>(api, "/browsers/{id_or_name}/computer/move_mouse", "move_mouse", "Moves the mouse to a point.");
    action::<DragMouse>(
        api,
        "/browsers/{id_or_name}/computer/drag_mouse",
        "drag_mouse",
        "Presses a mouse button at the first point of a path, moves along the path and releases the button.",
    );
    action::<Scroll>(api, "/browsers/{id_or_name}/computer/scroll", "scroll", "Turns the mouse wheel at a point.");
    action::<PressKey>(api, "/browsers/{id_or_name}/computer/press_key", "press_key", "Presses keys.");
    action::<TypeText>(
        api,
        "/browsers/{id_or_name}/computer/type",
        "type_text",
        "Types text exactly, whatever its language and the keyboard layout.",
    );
    api.post("/browsers/{id_or_name}/computer/get_mouse_position", "get_mouse_position", control::get_mouse_position)
        .summary("Returns the position of the mouse.")
        .returns::<MousePosition>();
    api.post("/browsers/{id_or_name}/computer/cursor", "set_cursor", control::set_cursor)
        .summary("Hides or shows the mouse cursor in live views and recordings. Screenshots never show it.")
        .body::<SetCursor>()
        .returns::<CursorSet>();
    api.post("/browsers/{id_or_name}/computer/batch", "batch", control::batch)
        .summary(
            "Performs several actions in order. All are checked first; the first that fails ends the batch, and the message names it.",
        )
        .body::<Batch>()
        .no_content("All actions are done")
        .refuses([("400", "A field breaks a rule; nothing was done")])
        .fails("An action failed, `actions[3]: …`: those before it are done");
}

/// Declares an operation that performs one action.
fn action<T: DeserializeOwned + Into<ActionRequest> + ToSchema + 'static>(
    api: &mut Operations,
    path: &'static str,
    id: &'static str,
    summary: &str,
) {
    api.post(path, id, control::perform::<T>).summary(summary).body::<T>().no_content("Done");
}
