//! The reading of a page, and the actions on it.

use secrecy::SecretString;

/// The maximum number of frames of a page that are read.
pub const MAX_FRAMES: usize = 30;
/// The maximum number of inputs of a page.
pub const MAX_INPUTS: usize = 80;
/// The maximum number of buttons and links of a page.
pub const MAX_BUTTONS: usize = 200;
/// The maximum number of dialogs and bars of a page.
pub const MAX_LAYERS: usize = 20;
/// The maximum number of texts of a page.
pub const MAX_TEXTS: usize = 120;
/// The maximum number of options of a list.
pub const MAX_OPTIONS: usize = 60;
/// The maximum number of characters of a label.
pub const MAX_LABEL: usize = 160;
/// The maximum number of characters of a text.
pub const MAX_TEXT: usize = 400;
/// The maximum number of characters of a URL.
pub const MAX_URL: usize = 2000;

/// An opaque name of an element, valid while the element is in its document.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub String);

/// An opaque mark of what a page shows. Two readings that differ have different marks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mark(pub String);

/// The content of a page. All texts come from the page: bounded and free of control characters, but not trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The URL of the page.
    pub url: String,
    /// The title of the page.
    pub title: String,
    /// The language that the page declares: `de`, `en-GB`.
    pub language: String,
    /// The HTTP status of the page, if it is known.
    pub status: Option<u16>,
    /// The frames: the page itself first, then its visible frames.
    pub frames: Vec<Frame>,
    /// The inputs in document order.
    pub inputs: Vec<Input>,
    /// Buttons, links and everything else that can be pressed, in document order.
    pub buttons: Vec<Button>,
    /// The texts in document order.
    pub texts: Vec<Text>,
    /// The dialogs and bars over the page.
    pub layers: Vec<Layer>,
    /// The visible captchas.
    pub captchas: Vec<Captcha>,
    /// Whether the page had settled before it was read. A page that never settles is read too.
    pub settled: bool,
    /// Whether the page exceeds a maximum, so that a part of it is missing.
    pub cut: bool,
    /// The mark of what the page shows.
    pub mark: Mark,
}

/// A page, or a frame in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The origin, such as `https://login.example.com`; `null` if the frame has an opaque origin.
    pub origin: String,
    /// The URL of the frame.
    pub url: String,
}

/// A dialog or a bar over the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer {
    /// The words of the label, `id` and `class`.
    pub marks: String,
    /// Whether it is marked as a dialog (`<dialog>`, `role=dialog`, `aria-modal`).
    pub dialog: bool,
}

/// An input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// The place in the document: later elements have larger numbers.
    pub place: usize,
    /// The index of the frame in [`Reading::frames`].
    pub frame: usize,
    /// The number of the form in the reading; `None` outside of any form.
    pub form: Option<usize>,
    /// The index of the layer in [`Reading::layers`]; `None` in the page itself.
    pub layer: Option<usize>,
    /// Whether it is visible.
    pub visible: bool,
    /// Whether another element covers it.
    pub covered: bool,
    /// Whether it is disabled.
    pub disabled: bool,
    /// The handle for actions.
    pub handle: Handle,
    /// The CSS selector, for people.
    pub selector: String,
    /// The kind in lower case: `text`, `email`, `password`, `tel`, `number`, `url`, `checkbox`, `radio`, `select`, …
    pub kind: String,
    /// The `name` attribute.
    pub name: String,
    /// The `id` attribute.
    pub id: String,
    /// The text of the labels, `aria-labelledby` and `aria-label` included.
    pub label: String,
    /// The `placeholder` attribute.
    pub placeholder: String,
    /// The description (`aria-describedby`).
    pub hint: String,
    /// The `autocomplete` attribute, in lower case.
    pub autocomplete: String,
    /// The `inputmode` attribute, in lower case.
    pub mode: String,
    /// The maximum number of characters of the value.
    pub max_length: Option<u32>,
    /// The options of a list.
    pub options: Vec<String>,
    /// Whether it is required.
    pub required: bool,
    /// Whether the page marks its value as wrong (`aria-invalid`).
    pub invalid: bool,
    /// Whether it has a value, or is a ticked checkbox.
    pub filled: bool,
}

/// A button, a link or another element that can be pressed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Button {
    /// The place in the document: later elements have larger numbers.
    pub place: usize,
    /// The handle for actions.
    pub handle: Handle,
    /// The index of the frame in [`Reading::frames`].
    pub frame: usize,
    /// The number of the form in the reading.
    pub form: Option<usize>,
    /// The kind.
    pub kind: ButtonKind,
    /// The label.
    pub label: String,
    /// The text beside the button in the same row, without the label.
    pub description: String,
    /// The words of the `name`, `id`, `class`, `data-*` attributes and image.
    pub marks: String,
    /// The target of a link.
    pub href: String,
    /// Whether it is disabled.
    pub disabled: bool,
    /// The index of the layer in [`Reading::layers`]; `None` in the page itself.
    pub layer: Option<usize>,
    /// Whether another element covers it.
    pub covered: bool,
    /// The CSS selector, for people.
    pub selector: String,
    /// The XPath, for people.
    pub xpath: String,
}

/// The kind of a button.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ButtonKind {
    /// A button that submits a form.
    Submit,
    /// Any other button, of any element.
    #[default]
    Button,
    /// A link.
    Link,
    /// A row of a list: an account, a method.
    Item,
    /// A radio button.
    Radio,
}

/// A text of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    /// The place in the document: later elements have larger numbers.
    pub place: usize,
    /// The index of the frame in [`Reading::frames`].
    pub frame: usize,
    /// The kind.
    pub kind: TextKind,
    /// The text.
    pub text: String,
    /// The index of the layer in [`Reading::layers`]; `None` in the page itself.
    pub layer: Option<usize>,
}

/// The kind of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextKind {
    /// A heading.
    Heading,
    /// A text marked as important: `role=alert`, an assertive live region, the message of a field.
    Alert,
    /// A text that looks like an error by its name or color.
    Error,
    /// Any other text.
    #[default]
    Plain,
}

/// A visible captcha.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captcha {
    /// `recaptcha`, `hcaptcha`, `turnstile` …; `picture` for a captcha of the page's own.
    pub kind: String,
    /// Whether it covers the page, so that it must be solved before anything else.
    pub blocking: bool,
    /// Whether it has been solved.
    pub solved: bool,
}

/// An action on a page. `Debug` shows no value.
#[derive(Clone, Debug)]
pub enum Act {
    /// Replaces the value of an input.
    Fill {
        /// The input.
        into: Handle,
        /// The new value.
        text: SecretString,
        /// The origin of the frame that the value is for. The value is not typed into any other origin, even if the
        /// page has changed since the reading.
        origin: String,
    },
    /// Types a code, either into one box or one character into each box.
    FillCode {
        /// One box, or one for each character.
        into: Vec<Handle>,
        /// The code.
        code: SecretString,
        /// The origin of the frame, as in [`Act::Fill`].
        origin: String,
    },
    /// Ticks or unticks a checkbox.
    Check {
        /// The checkbox.
        what: Handle,
        /// Whether it is to be ticked.
        on: bool,
    },
    /// Chooses an option of a list.
    Choose {
        /// The list.
        from: Handle,
        /// The text of the option.
        option: String,
        /// The origin of the frame, as in [`Act::Fill`].
        origin: String,
    },
    /// Clicks an element.
    Click {
        /// The element.
        what: Handle,
        /// Whether a window that it opens belongs to the login. Any other window is closed.
        window: bool,
    },
    /// Presses a key.
    Press {
        /// The element to focus first; `None`: the focus stays.
        on: Option<Handle>,
        /// The key.
        key: Key,
    },
}

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Submits a form.
    Enter,
    /// Closes a dialog.
    Escape,
}

/// The state of a login flow that is not part of the page, for [`understand`](super::understand).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The progress so far.
    pub progress: super::Progress,
    /// The SSO provider whose button is pressed first, if the page has one: `google`.
    pub sso_provider: Option<String>,
}

/// Returns `text` in one line, without control characters and direction marks, cut to `max` characters.
#[must_use]
pub fn clean(text: &str, max: usize) -> String {
    let hidden = |c: char| matches!(c, '\u{00AD}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}');
    let mut cleaned = String::new();
    let (mut count, mut gap) = (0, false);
    // Hidden characters do not count, so they have a bound of their own.
    for c in text.chars().take(max.saturating_mul(8)) {
        if c.is_whitespace() || c.is_control() {
            gap = !cleaned.is_empty();
            continue;
        }
        if hidden(c) {
            continue;
        }
        if count + usize::from(gap) >= max {
            break;
        }
        if std::mem::take(&mut gap) {
            cleaned.push(' ');
            count += 1;
        }
        cleaned.push(c);
        count += 1;
    }
    cleaned
}
