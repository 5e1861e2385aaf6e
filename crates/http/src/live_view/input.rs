//! Messages of a viewer's page, and the DevTools commands for them.

use serde::Deserialize;
use serde_json::{Value, json};

use super::uploads::is_uploaded;

/// The maximum size of a text that is inserted at once, in bytes.
pub(super) const MAX_TEXT_BYTES: usize = 1024 * 1024;
/// The maximum size of a text that is typed key by key, in bytes.
pub(super) const MAX_TYPED_BYTES: usize = 4 * 1024;
/// The maximum wheel step, in CSS pixels.
const MAX_WHEEL_STEP: f64 = 5_000.0;

/// A message of the page.
#[derive(Debug, Deserialize)]
#[serde(tag = "t", rename_all = "snake_case")]
pub(super) enum PageMessage {
    /// A frame was drawn.
    Ack,
    /// The size of the canvas in device pixels.
    Size {
        w: u32,
        h: u32,
    },
    /// Brings another tab to the front.
    Tab {
        id: String,
    },
    /// Answers the dialog of a page.
    Dialog {
        page: String,
        accept: bool,
        #[serde(default)]
        text: String,
    },
    Mouse(Mouse),
    Wheel(Wheel),
    Key(Key),
    /// Pasted or composed text.
    Text {
        s: String,
        #[serde(default)]
        paste: bool,
    },
    /// Uploaded files of the session are dropped at a position.
    Drop(DroppedFiles),
}

/// A mouse event; `x` and `y` run from 0 to 1 over the picture.
#[derive(Debug, Deserialize)]
pub(super) struct Mouse {
    pub(super) k: MouseKind,
    pub(super) x: f64,
    pub(super) y: f64,
    #[serde(default)]
    pub(super) b: Button,
    #[serde(default)]
    held: u8,
    #[serde(default)]
    n: u8,
    #[serde(default)]
    pub(super) m: u8,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MouseKind {
    Move,
    Down,
    Up,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Button {
    #[default]
    None,
    Left,
    Middle,
    Right,
    Back,
    Forward,
}

/// A turn of the wheel at a position.
#[derive(Debug, Deserialize)]
pub(super) struct Wheel {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) dx: f64,
    pub(super) dy: f64,
    #[serde(default)]
    pub(super) m: u8,
}

/// Dropped files; `x` and `y` run from 0 to 1 over the picture.
#[derive(Debug, Deserialize)]
pub(super) struct DroppedFiles {
    pub(super) x: f64,
    pub(super) y: f64,
    /// The paths of the files in the session.
    pub(super) paths: Vec<String>,
}

/// The maximum number of files that are dropped at once.
const MAX_FILES: usize = 100;

impl DroppedFiles {
    /// Returns whether all paths are uploads. A page can read files that are dropped onto it, so any other path would
    /// expose that file to every page in the session.
    pub(super) fn is_plain(&self) -> bool {
        (1..=MAX_FILES).contains(&self.paths.len()) && self.paths.iter().all(|path| is_uploaded(path))
    }
}

/// A key, named as in the viewer's browser, so that every layout works.
#[derive(Debug, Deserialize)]
pub(super) struct Key {
    k: KeyKind,
    pub(super) key: String,
    #[serde(default)]
    pub(super) code: String,
    #[serde(default)]
    pub(super) text: String,
    #[serde(default)]
    vk: u8,
    #[serde(default)]
    pub(super) m: u8,
    #[serde(default)]
    loc: u8,
    #[serde(default)]
    repeat: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KeyKind {
    Down,
    Up,
}

/// The size of the tab in pixels of the picture, from the latest frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct TabSize {
    pub(super) width: f64,
    pub(super) height: f64,
    /// The number of these pixels per CSS pixel.
    pub(super) zoom: f64,
}

impl Default for TabSize {
    fn default() -> Self {
        Self { width: 0.0, height: 0.0, zoom: 1.0 }
    }
}

impl TabSize {
    pub(super) fn point(self, x: f64, y: f64) -> (f64, f64) {
        // `clamp` passes NaN, but JSON has none.
        (x.clamp(0.0, 1.0) * self.width / self.zoom, y.clamp(0.0, 1.0) * self.height / self.zoom)
    }
}

impl Mouse {
    pub(super) fn command(&self, size: TabSize) -> (&'static str, Value) {
        let (x, y) = size.point(self.x, self.y);
        let kind = match self.k {
            MouseKind::Move => "mouseMoved",
            MouseKind::Down => "mousePressed",
            MouseKind::Up => "mouseReleased",
        };
        let button = match self.b {
            Button::None => "none",
            Button::Left => "left",
            Button::Middle => "middle",
            Button::Right => "right",
            Button::Back => "back",
            Button::Forward => "forward",
        };
        let params = json!({
            "type": kind, "x": x, "y": y, "button": button, "buttons": self.held & 31,
            "clickCount": self.n.min(3), "modifiers": self.m & 15,
        });
        ("Input.dispatchMouseEvent", params)
    }
}

impl Wheel {
    pub(super) fn command(&self, size: TabSize) -> (&'static str, Value) {
        let (x, y) = size.point(self.x, self.y);
        let params = json!({
            "type": "mouseWheel", "x": x, "y": y, "modifiers": self.m & 15,
            "deltaX": self.dx.clamp(-MAX_WHEEL_STEP, MAX_WHEEL_STEP), "deltaY": self.dy.clamp(-MAX_WHEEL_STEP, MAX_WHEEL_STEP),
        });
        ("Input.dispatchMouseEvent", params)
    }
}

impl Key {
    pub(super) fn is_up(&self) -> bool {
        self.k == KeyKind::Up
    }

    /// Returns whether the key is the right one of a pair.
    pub(super) fn is_right(&self) -> bool {
        self.loc == 2
    }

    /// Returns whether the names are no longer than those of real keys.
    pub(super) fn is_plain(&self) -> bool {
        [&self.key, &self.code, &self.text].iter().all(|name| name.len() <= 64)
    }

    /// Returns the DevTools command; `None` if the names are too long.
    pub(super) fn command(&self) -> Option<(&'static str, Value)> {
        if !self.is_plain() {
            return None;
        }
        let kind = match (self.k, self.text.is_empty()) {
            (KeyKind::Up, _) => "keyUp",
            (KeyKind::Down, false) => "keyDown",
            // The key types no character, such as a shortcut, an arrow or a modifier.
            (KeyKind::Down, true) => "rawKeyDown",
        };
        let mut params = json!({
            "type": kind, "key": self.key, "code": self.code, "modifiers": self.m & 15, "autoRepeat": self.repeat,
            "windowsVirtualKeyCode": self.vk, "nativeVirtualKeyCode": self.vk,
            "location": self.loc.min(2), "isKeypad": self.loc == 3,
        });
        if kind == "keyDown" {
            params["text"] = self.text.as_str().into();
            params["unmodifiedText"] = self.text.as_str().into();
        }
        Some(("Input.dispatchKeyEvent", params))
    }
}

/// Returns the command that inserts text; `None` if it is too long.
pub(super) fn insert_text(text: &str) -> Option<(&'static str, Value)> {
    (text.len() <= MAX_TEXT_BYTES).then(|| ("Input.insertText", json!({ "text": text })))
}
