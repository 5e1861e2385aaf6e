//! `…/computer`: the display, the mouse, the keyboard and the clipboard of a session.

mod body;
mod clipboard;
mod control;
mod screenshot;

pub(crate) use {
    clipboard::{__path_read_clipboard, __path_write_clipboard, read_clipboard, write_clipboard},
    control::{
        __path_batch, __path_click_mouse, __path_drag_mouse, __path_get_mouse_position, __path_move_mouse,
        __path_press_key, __path_scroll, __path_set_cursor, __path_type_text, batch, click_mouse, drag_mouse,
        get_mouse_position, move_mouse, press_key, scroll, set_cursor, type_text,
    },
    screenshot::{__path_capture_screenshot, capture_screenshot},
};
