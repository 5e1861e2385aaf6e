//! A reading with its words folded once, and what is asked of it again and again.

use super::super::{AllowedHosts, Button, Input, Known, Reading, Text, TextKind};
use super::words::{self, fold, says};

/// A button and its words.
#[derive(Clone, Debug)]
pub(super) struct Press<'a> {
    pub(super) button: &'a Button,
    /// What it says.
    pub(super) label: String,
    /// What it says, what stands beside it, and what its attributes say.
    pub(super) all: String,
}

/// An input and its words.
#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub(super) input: &'a Input,
    /// What a person reads of it.
    pub(super) label: String,
    /// And what its attributes say.
    pub(super) all: String,
}

/// A text and its words.
#[derive(Clone, Debug)]
pub(super) struct PageText<'a> {
    pub(super) text: &'a Text,
    pub(super) words: String,
}

/// What is judged.
pub(super) struct Page<'a> {
    pub(super) reading: &'a Reading,
    pub(super) known: &'a Known,
    pub(super) hosts: &'a AllowedHosts,
    /// Inputs that are seen and can be changed, in frames where something may be typed.
    pub(super) entries: Vec<Entry<'a>>,
    /// Buttons that are not switched off.
    pub(super) presses: Vec<Press<'a>>,
    pub(super) texts: Vec<PageText<'a>>,
    /// The host of a frame that asks for a password and may not.
    pub(super) forbidden: Option<String>,
}

impl<'a> Page<'a> {
    pub(super) fn of(reading: &'a Reading, known: &'a Known, hosts: &'a AllowedHosts) -> Self {
        let mut forbidden = None;
        let mut entries = Vec::new();
        for input in reading.inputs.iter().filter(|input| input.visible && !input.disabled) {
            match reading.frames.get(input.frame).map(|frame| allowed(hosts, &frame.origin)) {
                Some(Ok(())) => entries.push(entry(input)),
                Some(Err(host)) if input.kind == "password" => forbidden = Some(host),
                _ => {}
            }
        }
        let presses = reading.buttons.iter().filter(|button| !button.disabled).map(press).collect();
        let texts = reading.texts.iter().map(|text| PageText { text, words: fold(&text.text) }).collect();
        Self { reading, known, hosts, entries, presses, texts, forbidden }
    }

    /// Whether a text of the page, or its title, says one of these.
    pub(super) fn says(&self, phrases: &[&str]) -> bool {
        says(&fold(&self.reading.title), phrases) || self.texts.iter().any(|said| says(&said.words, phrases))
    }

    /// Whether a heading or the title does.
    pub(super) fn heads(&self, phrases: &[&str]) -> bool {
        let heading = |said: &&PageText<'_>| said.text.kind == TextKind::Heading && says(&said.words, phrases);
        says(&fold(&self.reading.title), phrases) || self.texts.iter().any(|said| heading(&said))
    }

    /// The path of the page's address, and what follows it, as words.
    pub(super) fn path(&self) -> String {
        let path = url::Url::parse(&self.reading.url)
            .map(|url| format!("{} {}", url.path(), url.fragment().unwrap_or_default()));
        fold(&path.unwrap_or_default())
    }

    pub(super) fn host(&self) -> String {
        url::Url::parse(&self.reading.url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default()
    }

    pub(super) fn origin(&self, frame: usize) -> String {
        self.reading.frames.get(frame).map(|frame| frame.origin.clone()).unwrap_or_default()
    }

    /// Whether a layer is a dialog, by its own word.
    pub(super) fn is_dialog(&self, layer: Option<usize>) -> bool {
        layer.and_then(|layer| self.reading.layers.get(layer)).is_some_and(|layer| layer.dialog)
    }

    /// Whether there is a way to log in from here.
    pub(super) fn login_press(&self) -> Option<&Press<'a>> {
        let fits = |press: &&Press<'a>| {
            let leads = says(&fold(&press.button.href), &["login", "signin", "sign in", "log in", "logon", "anmelden"]);
            let words = press.label.split_whitespace().count();
            !press.button.covered
                && (1..=5).contains(&words)
                && (says(&press.label, words::LOGIN)
                    || (leads && words <= 2 && says(&press.label, &["account", "konto", "compte", "cuenta"])))
                && !says(&press.label, words::FORGOT)
                && !says(&press.label, words::SIGN_OUT)
                && !says(&press.label, words::REGISTER)
        };
        let exact = |press: &&Press<'a>| words::is(&press.label, words::LOGIN);
        self.presses.iter().filter(fits).find(exact).or_else(|| self.presses.iter().find(fits))
    }
}

/// Whether something may be typed in a frame of that origin; the host if not.
fn allowed(hosts: &AllowedHosts, origin: &str) -> Result<(), String> {
    hosts.check(origin).map(drop)
}

fn entry(input: &Input) -> Entry<'_> {
    let label = fold(&format!("{} {}", input.label, input.placeholder));
    let all = fold(&format!("{} {} {} {}", input.label, input.placeholder, input.name, input.id));
    Entry { input, label, all }
}

fn press(button: &Button) -> Press<'_> {
    let label = fold(&button.label);
    let all = fold(&format!("{} {} {}", button.label, button.description, button.marks));
    Press { button, label, all }
}
