//! The live view: pages that show the session's browser and forward mouse, keyboard, pasted text and dropped files.
//!
//! Each viewer has a DevTools connection of its own. For a session with a display, the changed parts of the display are
//! sent, captured once for all viewers, and input is performed by computer control. For other sessions, the screencast of
//! one tab is sent, and input is translated into DevTools commands. Frames are JPEG images in binary messages; all other
//! messages are JSON text.

mod cdp;
mod dialogs;
mod display;
mod held_keys;
mod input;
mod page;
mod places;
mod screencast;
mod shared;
mod tabs;
mod uploads;
mod viewer;
mod viewer_input;

pub(crate) use self::viewer::refuse_view;
pub(crate) use self::{cdp::Cdp, page::embedded, places::ViewPlaces, shared::SharedDisplays, uploads::upload_path};
pub use self::{
    dialogs::PageDialogs,
    display::WholeDisplay,
    page::{asset, page},
    viewer::{Access, LiveView, LiveViewError},
};
