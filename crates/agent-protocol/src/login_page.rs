//! Login pages: `/v1/login_page/…`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// `POST`, [`OpenPage`] → [`Done`]. Answers once the document starts to load.
pub const OPEN: &str = "/v1/login_page/open";
/// `POST`, [`ReadPage`] → [`Reading`].
pub const READ: &str = "/v1/login_page/read";
/// `POST`, [`ActRequest`] → [`Done`].
pub const ACT: &str = "/v1/login_page/act";
/// `POST` → a PNG in which no value of a field is legible.
pub const PICTURE: &str = "/v1/login_page/picture";

/// The longest wait of a read, in milliseconds.
pub const MAX_WAIT_MS: u64 = 60_000;
/// The maximum number of acts of one request.
pub const MAX_ACTS: usize = 100;
/// The longest typed text, in bytes.
pub const MAX_TYPED: usize = 4096;

/// A URL to open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenPage {
    /// The URL: `http` or `https`.
    pub url: String,
}

/// The parameters of a read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadPage {
    /// Waits until the page's mark differs from this one.
    #[serde(default)]
    pub differs_from: Option<String>,
    /// The longest wait, in milliseconds.
    pub within_ms: u64,
}

/// The content of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reading {
    /// The page's URL.
    pub url: String,
    /// The page's title.
    pub title: String,
    /// The language that the page declares.
    pub language: String,
    /// The status of the server's response.
    pub status: Option<u16>,
    /// The page itself and its visible frames.
    pub frames: Vec<Frame>,
    /// The inputs.
    pub inputs: Vec<Input>,
    /// Buttons, links and other clickable elements.
    pub buttons: Vec<Button>,
    /// The texts.
    pub texts: Vec<Text>,
    /// Dialogs and bars over the page.
    pub layers: Vec<Layer>,
    /// The captchas.
    pub captchas: Vec<Captcha>,
    /// True if the page has stopped changing.
    pub settled: bool,
    /// True if the content was truncated.
    pub cut: bool,
    /// A digest of the content.
    pub mark: String,
    /// The browser's reason why there is no page.
    pub failed: Option<String>,
}

/// A page or a frame.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Frame {
    /// Its origin.
    pub origin: String,
    /// Its URL.
    pub url: String,
}

/// An element that takes a value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Input {
    /// Its position among all elements.
    pub place: usize,
    /// Its handle for acts.
    pub handle: String,
    /// The index of its frame.
    pub frame: usize,
    /// The index of its form.
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
    /// The maximum number of characters of its value.
    pub max_length: Option<u32>,
    /// True if a value is required.
    pub required: bool,
    /// True if its value is marked as wrong.
    pub invalid: bool,
    /// True if it has a value, or is checked.
    pub filled: bool,
    /// True if nothing can be typed.
    pub disabled: bool,
    /// True if it is visible.
    pub visible: bool,
    /// The index of its layer.
    pub layer: Option<usize>,
    /// True if something covers it.
    pub covered: bool,
    /// The options of a list.
    pub options: Vec<String>,
    /// Its CSS selector.
    pub selector: String,
}

/// A clickable element.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Button {
    /// Its position among all elements.
    pub place: usize,
    /// Its handle for acts.
    pub handle: String,
    /// The index of its frame.
    pub frame: usize,
    /// The index of its form.
    pub form: Option<usize>,
    /// `submit`, `button`, `link`, `item` or `radio`.
    pub kind: String,
    /// Its text.
    pub label: String,
    /// The text beside it.
    pub description: String,
    /// Its attributes, shortened.
    pub marks: String,
    /// The target of a link.
    pub href: String,
    /// True if it cannot be clicked.
    pub disabled: bool,
    /// The index of its layer.
    pub layer: Option<usize>,
    /// True if something covers it.
    pub covered: bool,
    /// Its CSS selector.
    pub selector: String,
    /// Its XPath.
    pub xpath: String,
}

/// A text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Text {
    /// Its position among all elements.
    pub place: usize,
    /// The index of its frame.
    pub frame: usize,
    /// `heading`, `alert`, `error` or `plain`.
    pub kind: String,
    /// Its content.
    pub text: String,
    /// The index of its layer.
    pub layer: Option<usize>,
}

/// A dialog or a bar.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Layer {
    /// Its label, `id` and `class`.
    pub marks: String,
    /// True if it is marked as a dialog.
    pub dialog: bool,
}

/// A captcha.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Captcha {
    /// Its provider.
    pub kind: String,
    /// True if it covers a good part of the page.
    pub blocking: bool,
    /// True if it is solved.
    pub solved: bool,
}

/// A text to type. `Debug` hides it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Typed(…)")
    }
}

/// Acts, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActRequest {
    /// The acts.
    pub acts: Vec<Act>,
}

/// An act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum Act {
    /// Types a text.
    Fill {
        /// The handle of the input.
        into: String,
        /// The text.
        text: SecretText,
        /// The expected origin of the frame.
        origin: String,
    },
    /// Types a code into one input or several.
    FillCode {
        /// The handles of the inputs.
        into: Vec<String>,
        /// The code.
        code: SecretText,
        /// The expected origin of the frame.
        origin: String,
    },
    /// Checks or unchecks a box.
    Check {
        /// The handle of the box.
        what: String,
        /// True to check it.
        on: bool,
    },
    /// Chooses an option of a list.
    Choose {
        /// The handle of the list.
        from: String,
        /// The text of the option.
        option: String,
        /// The expected origin of the frame.
        origin: String,
    },
    /// Clicks with the mouse.
    Click {
        /// The handle of the element.
        what: String,
        /// True if a window that opens belongs to the login.
        #[serde(default)]
        window: bool,
    },
    /// Presses a key.
    Press {
        /// The handle of the element to focus first.
        #[serde(default)]
        on: Option<String>,
        /// The key.
        key: Key,
    },
}

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Key {
    /// Submits.
    Enter,
    /// Cancels.
    Escape,
}

/// The result of acts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// The fault, if they failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// The reason why an act failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum Fault {
    /// The page could not be loaded.
    Navigation {
        /// The browser's reason.
        reason: String,
    },
    /// The element does not exist any more.
    Stale {
        /// Its handle.
        handle: String,
    },
    /// The frame has another origin.
    WrongOrigin {
        /// The expected origin.
        wanted: String,
        /// The actual origin.
        found: String,
    },
    /// The element cannot be used.
    NotUsable {
        /// The reason.
        reason: String,
    },
    /// The page did not answer.
    Hangs {
        /// The timeout in seconds.
        seconds: u32,
    },
}
