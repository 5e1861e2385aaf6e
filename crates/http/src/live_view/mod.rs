//! The live view: a page that shows the session's browser and passes mouse, keyboard, pasted text and dropped files on.
//!
//! Each viewer has a DevTools connection of its own. Of a session with a display all of it is shown, as the parts that changed, and
//! what the viewer does goes the ways of computer control; of others one tab's screencast, and what the viewer does becomes DevTools
//! commands. Frames are JPEG images in binary messages, everything else is JSON in text messages.

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
pub(crate) use self::{page::embedded, uploads::path_of as upload_path};
