//! Login pages: the words of `/v1/login_page/…`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// `POST`, [`OpenPage`] → [`Done`]. Answers once the document begins to come.
pub const OPEN: &str = "/v1/login_page/open";
/// `POST`, [`ReadPage`] → [`Reading`].
pub const READ: &str = "/v1/login_page/read";
/// `POST`, [`ActRequest`] → [`Done`].
pub const ACT: &str = "/v1/login_page/act";
/// `POST` → a PNG in which no value of a field is legible.
pub const PICTURE: &str = "/v1/login_page/picture";

/// Longest wait of a reading, in milliseconds.
pub const MAX_WAIT_MS: u64 = 60_000;
/// Most acts of one request.
pub const MAX_ACTS: usize = 100;
/// Longest text that is typed, in bytes.
pub const MAX_TYPED: usize = 4096;

/// An address to open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenPage {
    /// `http` or `https`.
    pub url: String,
}

/// How to read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadPage {
    /// Wait until the page differs from what had this mark.
    #[serde(default)]
    pub differs_from: Option<String>,
    /// For how long to wait at most, in milliseconds.
    pub within_ms: u64,
}

/// What a page shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reading {
    /// The page's address.
    pub url: String,
    /// Its title.
    pub title: String,
    /// The language it says it is in.
    pub language: String,
    /// With which status the server answered.
    pub status: Option<u16>,
    /// The page itself and the frames in it that are seen.
    pub frames: Vec<Frame>,
    /// Inputs.
    pub inputs: Vec<Input>,
    /// Buttons, links, and what else can be pressed.
    pub buttons: Vec<Button>,
    /// Texts.
    pub texts: Vec<Text>,
    /// Dialogs and bars over the page.
    pub layers: Vec<Layer>,
    /// Captchas.
    pub captchas: Vec<Captcha>,
    /// Whether the page had come to rest.
    pub settled: bool,
    /// Whether there was more.
    pub cut: bool,
    /// What it shows, in short.
    pub mark: String,
    /// The browser's word for why there is no page.
    pub failed: Option<String>,
}

/// A page or a frame.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Frame {
    /// Its origin.
    pub origin: String,
    /// Its address.
    pub url: String,
}

/// Something that takes a value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Input {
    /// Where it stands among all.
    pub place: usize,
    /// How to act on it.
    pub handle: String,
    /// In which frame.
    pub frame: usize,
    /// In which form.
    pub form: Option<usize>,
    /// Its type.
    pub kind: String,
    /// Its `name`.
    pub name: String,
    /// Its `id`.
    pub id: String,
    /// Its labels.
    pub label: String,
    /// Its placeholder.
    pub placeholder: String,
    /// Its description.
    pub hint: String,
    /// Its `autocomplete`.
    pub autocomplete: String,
    /// Its `inputmode`.
    pub mode: String,
    /// How many characters it takes.
    pub max_length: Option<u32>,
    /// Whether it must have a value.
    pub required: bool,
    /// Whether its value is marked as wrong.
    pub invalid: bool,
    /// Whether it has a value, or is ticked.
    pub filled: bool,
    /// Whether nothing can be typed.
    pub disabled: bool,
    /// Whether it is seen.
    pub visible: bool,
    /// In which layer.
    pub layer: Option<usize>,
    /// Whether something lies over it.
    pub covered: bool,
    /// Options of a list.
    pub options: Vec<String>,
    /// CSS.
    pub selector: String,
}

/// Something that can be pressed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Button {
    /// Where it stands among all.
    pub place: usize,
    /// How to act on it.
    pub handle: String,
    /// In which frame.
    pub frame: usize,
    /// In which form.
    pub form: Option<usize>,
    /// `submit`, `button`, `link`, `item` or `radio`.
    pub kind: String,
    /// What it says.
    pub label: String,
    /// What stands beside it.
    pub description: String,
    /// Its attributes, in short.
    pub marks: String,
    /// Where a link leads.
    pub href: String,
    /// Whether it cannot be pressed.
    pub disabled: bool,
    /// In which layer.
    pub layer: Option<usize>,
    /// Whether something lies over it.
    pub covered: bool,
    /// CSS.
    pub selector: String,
    /// XPath.
    pub xpath: String,
}

/// Something to read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Text {
    /// Where it stands among all.
    pub place: usize,
    /// In which frame.
    pub frame: usize,
    /// `heading`, `alert`, `error` or `plain`.
    pub kind: String,
    /// What it says.
    pub text: String,
    /// In which layer.
    pub layer: Option<usize>,
}

/// A dialog or a bar.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Layer {
    /// Its label, `id` and `class`.
    pub marks: String,
    /// Whether it says that it is a dialog.
    pub dialog: bool,
}

/// A captcha.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Captcha {
    /// Whose.
    pub kind: String,
    /// Whether it takes a good part of the page.
    pub blocking: bool,
    /// Whether it is solved.
    pub solved: bool,
}

/// A text that is typed. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Typed(…)")
    }
}

/// Things to do, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActRequest {
    /// What.
    pub acts: Vec<Act>,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum Act {
    /// Types.
    Fill {
        /// Into what.
        into: String,
        /// What.
        text: SecretText,
        /// For a frame of which origin.
        origin: String,
    },
    /// Types a code into one box or several.
    FillCode {
        /// Into what.
        into: Vec<String>,
        /// What.
        code: SecretText,
        /// For a frame of which origin.
        origin: String,
    },
    /// Ticks.
    Check {
        /// What.
        what: String,
        /// On or off.
        on: bool,
    },
    /// Chooses of a list.
    Choose {
        /// Which.
        from: String,
        /// What it says.
        option: String,
        /// For a frame of which origin.
        origin: String,
    },
    /// Presses with the mouse.
    Click {
        /// What.
        what: String,
        /// Whether a window that opens is a part of the login.
        #[serde(default)]
        window: bool,
    },
    /// Presses a key.
    Press {
        /// With the focus on what.
        #[serde(default)]
        on: Option<String>,
        /// Which.
        key: Key,
    },
}

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Key {
    /// Sends.
    Enter,
    /// Leaves.
    Escape,
}

/// How it went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum Fault {
    /// The page could not be loaded.
    Navigation {
        /// The browser's word.
        reason: String,
    },
    /// The element is not there any more.
    Stale {
        /// Which.
        handle: String,
    },
    /// The frame is of another origin.
    WrongOrigin {
        /// Meant.
        wanted: String,
        /// Found.
        found: String,
    },
    /// The element cannot be acted on.
    NotUsable {
        /// Why.
        reason: String,
    },
    /// The page did not answer.
    Hangs {
        /// For how long.
        seconds: u32,
    },
}
