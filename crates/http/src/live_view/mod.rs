//! The live view: pages that show the session's browser and pass mouse, keyboard, pasted text and dropped files on.
//!
//! Each viewer has a DevTools connection of its own. A session with a display is shown whole, as the parts that
//! changed, and input goes through computer control. Other sessions are shown as the screencast of one tab, and input
//! becomes DevTools commands. Frames are JPEG images in binary messages, everything else is JSON in text messages.

mod cdp;
mod dialogs;
mod display;
mod held_keys;
mod input;
mod page;
mod screencast;
mod tabs;
mod uploads;
mod viewer;
mod viewer_input;

pub use self::{
    dialogs::PageDialogs,
    display::WholeDisplay,
    page::{asset, page},
    viewer::{Access, LiveView, LiveViewError},
};
pub(crate) use self::{page::embedded, uploads::upload_path};
