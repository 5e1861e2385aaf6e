//! The live view: a page that shows the session's browser and passes mouse, keyboard and pasted text on.
//!
//! Each viewer has a DevTools connection of its own and follows one tab's screencast; frames are JPEG images in
//! binary messages, everything else is JSON in text messages.

mod cdp;
mod input;
mod page;
mod screencast;
mod tabs;
mod viewer;

pub(crate) use self::page::embedded;
pub use self::{
    page::{asset, page},
    viewer::{Access, LiveView, LiveViewError},
};
