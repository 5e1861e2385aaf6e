//! What is read off a page, and what can be done to it.

use secrecy::SecretString;

/// Frames of one page that are read.
pub const MAX_FRAMES: usize = 30;
/// Inputs of one page.
pub const MAX_INPUTS: usize = 80;
/// Buttons and links of one page.
pub const MAX_BUTTONS: usize = 200;
/// Dialogs and bars of one page.
pub const MAX_LAYERS: usize = 20;
/// Texts of one page.
pub const MAX_TEXTS: usize = 120;
/// Options of one list.
pub const MAX_OPTIONS: usize = 60;
/// Characters of a label.
pub const MAX_LABEL: usize = 160;
/// Characters of a text.
pub const MAX_TEXT: usize = 400;
/// Characters of an address.
pub const MAX_URL: usize = 2000;

/// Names an element of a page for as long as its document is there and it stands in it. Opaque.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub String);

/// Tells two readings apart that show something different. Opaque.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mark(pub String);

/// What a page shows now. Everything in it is the page's word: bounded and without control characters, but not to be believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The page's address.
    pub url: String,
    /// Its title.
    pub title: String,
    /// The language it says it is in: `de`, `en-GB`.
    pub language: String,
    /// With which status the server answered, if that is known.
    pub status: Option<u16>,
    /// The page itself, which is the first, and the frames in it that are seen.
    pub frames: Vec<Frame>,
    /// Inputs, in the order in which they stand.
    pub inputs: Vec<Input>,
    /// Buttons, links and what else can be pressed, in the order in which they stand.
    pub buttons: Vec<Button>,
    /// Texts, in the order in which they stand.
    pub texts: Vec<Text>,
    /// Dialogs and bars that lie over the page.
    pub layers: Vec<Layer>,
    /// Captchas that are seen.
    pub captchas: Vec<Captcha>,
    /// Whether the page had come to rest. One that never does is read all the same.
    pub settled: bool,
    /// Whether there was more than is read.
    pub cut: bool,
    /// What it shows, in short.
    pub mark: Mark,
}

/// A page, or a frame in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Scheme, host and port: `https://login.example.com`. `null` for one that has none.
    pub origin: String,
    /// Its address.
    pub url: String,
}

/// A dialog or a bar that lies over the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer {
    /// What its label, `id` and `class` say, in short.
    pub marks: String,
    /// Whether it says that it takes all attention (`<dialog>`, `role=dialog`, `aria-modal`).
    pub dialog: bool,
}

/// Something that takes a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// Where it stands among all that was read: what comes later has a larger number.
    pub place: usize,
    /// How to act on it.
    pub handle: Handle,
    /// In which of [`Reading::frames`].
    pub frame: usize,
    /// Which form it belongs to, counted in the reading; `None` for one outside of any.
    pub form: Option<usize>,
    /// `text`, `email`, `password`, `tel`, `number`, `url`, `checkbox`, `radio`, `select`, `hidden` …, in lower case.
    pub kind: String,
    /// Its `name`.
    pub name: String,
    /// Its `id`.
    pub id: String,
    /// What its labels say, `aria-labelledby` and `aria-label` among them.
    pub label: String,
    /// What stands in it while it is empty.
    pub placeholder: String,
    /// The text that describes it (`aria-describedby`).
    pub hint: String,
    /// Its `autocomplete`, in lower case.
    pub autocomplete: String,
    /// Its `inputmode`, in lower case.
    pub mode: String,
    /// How many characters it takes.
    pub max_length: Option<u32>,
    /// Whether it must have a value.
    pub required: bool,
    /// Whether the page marks its value as wrong (`aria-invalid`).
    pub invalid: bool,
    /// Whether it has a value, and whether a box is ticked.
    pub filled: bool,
    /// Whether nothing can be typed into it now.
    pub disabled: bool,
    /// Whether a person sees it.
    pub visible: bool,
    /// In which of [`Reading::layers`], if it does not stand in the page itself.
    pub layer: Option<usize>,
    /// Whether it can be reached, or something lies over it.
    pub covered: bool,
    /// What a list offers.
    pub options: Vec<String>,
    /// How to find it by hand: CSS.
    pub selector: String,
}

/// Something that can be pressed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Button {
    /// Where it stands among all that was read: what comes later has a larger number.
    pub place: usize,
    /// How to act on it.
    pub handle: Handle,
    /// In which of [`Reading::frames`].
    pub frame: usize,
    /// Which form it belongs to, counted in the reading.
    pub form: Option<usize>,
    /// What kind it is.
    pub kind: ButtonKind,
    /// What it says.
    pub label: String,
    /// What stands beside it in the same row, without what it says itself.
    pub description: String,
    /// What its `name`, `id`, `class`, `data-*` attributes and picture say, in short.
    pub marks: String,
    /// Where a link leads.
    pub href: String,
    /// Whether it cannot be pressed now.
    pub disabled: bool,
    /// In which of [`Reading::layers`], if it does not stand in the page itself.
    pub layer: Option<usize>,
    /// Whether something lies over it.
    pub covered: bool,
    /// How to find it by hand: CSS.
    pub selector: String,
    /// How to find it by hand: XPath.
    pub xpath: String,
}

/// What kind of thing can be pressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ButtonKind {
    /// Sends a form.
    Submit,
    /// Any other button, whatever it is made of.
    #[default]
    Button,
    /// A link.
    Link,
    /// A row of a list that can be pressed: an account, a method.
    Item,
    /// One of several buttons of which one is on.
    Radio,
}

/// Something to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    /// Where it stands among all that was read: what comes later has a larger number.
    pub place: usize,
    /// In which of [`Reading::frames`].
    pub frame: usize,
    /// What kind it is.
    pub kind: TextKind,
    /// What it says.
    pub text: String,
    /// In which of [`Reading::layers`], if it does not stand in the page itself.
    pub layer: Option<usize>,
}

/// What kind of text it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextKind {
    /// A heading.
    Heading,
    /// What the page marks as important news: `role=alert`, a live region that speaks, the message of a field.
    Alert,
    /// What looks like an error by its name or its colour.
    Error,
    /// Any other.
    #[default]
    Plain,
}

/// A captcha that is seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captcha {
    /// `recaptcha`, `hcaptcha`, `turnstile` …; `picture` for one of the page's own.
    pub kind: String,
    /// Whether it lies over the page or takes all of it, so that nothing goes on without it.
    pub blocking: bool,
    /// Whether it has been solved.
    pub solved: bool,
}

/// Something to do to a page. `Debug` shows no value.
#[derive(Clone, Debug)]
pub enum Act {
    /// Types `text` in the place of what is there.
    Fill {
        /// Into what.
        into: Handle,
        /// What.
        text: SecretString,
        /// The origin of the frame it is meant for. Typed nowhere else, whatever the page has become meanwhile.
        origin: String,
    },
    /// Types a code, either into one box or one character into each of several.
    FillCode {
        /// Into what; one, or as many as there are characters.
        into: Vec<Handle>,
        /// What.
        code: SecretString,
        /// As in [`Act::Fill`].
        origin: String,
    },
    /// Sets whether a box is ticked.
    Check {
        /// Which.
        what: Handle,
        /// Whether it is to be.
        on: bool,
    },
    /// Chooses an option of a list.
    Choose {
        /// Which list.
        from: Handle,
        /// What the option says.
        option: String,
        /// As in [`Act::Fill`].
        origin: String,
    },
    /// Presses something with the mouse.
    Click {
        /// What.
        what: Handle,
        /// Whether a window that it opens is a part of the login. Any other is closed.
        window: bool,
    },
    /// Presses a key.
    Press {
        /// With the focus on what; `None`: where it is.
        on: Option<Handle>,
        /// Which.
        key: Key,
    },
}

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Sends a form.
    Enter,
    /// Leaves a dialog.
    Escape,
}

/// What the flow knows beside the page, for [`understand`](super::understand).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// What has been done so far.
    pub progress: super::Progress,
    /// Whose button is to be pressed first, at a site that has it: `google`.
    pub sso_provider: Option<String>,
}

/// `text` without control characters and markers of direction, in one line, of at most `most` characters.
#[must_use]
pub fn clean(text: &str, most: usize) -> String {
    let hidden = |c: char| matches!(c, '\u{00AD}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}');
    let mut cleaned = String::new();
    let (mut count, mut gap) = (0, false);
    // What is hidden does not count, so it is bounded for itself.
    for c in text.chars().take(most.saturating_mul(8)) {
        if c.is_whitespace() || c.is_control() {
            gap = !cleaned.is_empty();
            continue;
        }
        if hidden(c) {
            continue;
        }
        if count + usize::from(gap) >= most {
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
