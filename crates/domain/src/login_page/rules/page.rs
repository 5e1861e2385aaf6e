//! A reading with its words folded once, and the queries that many rules use.

use super::super::{AllowedHosts, Button, Input, Known, Reading, Text, TextKind};
use super::words::{self, fold, says};

/// A button and its words.
#[derive(Clone, Debug)]
pub(super) struct Press<'a> {
    pub(super) button: &'a Button,
    /// The label of the button.
    pub(super) label: String,
    /// The label, the text beside the button and its attributes.
    pub(super) all: String,
}

/// An input and its words.
#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub(super) input: &'a Input,
    /// The label and placeholder of the input.
    pub(super) label: String,
    /// The label, placeholder, name and id of the input.
    pub(super) all: String,
}

/// A text and its words.
#[derive(Clone, Debug)]
pub(super) struct PageText<'a> {
    pub(super) text: &'a Text,
    pub(super) words: String,
}

/// The reading of a page with its folded words.
pub(super) struct Page<'a> {
    pub(super) reading: &'a Reading,
    pub(super) known: &'a Known,
    pub(super) hosts: &'a AllowedHosts,
    /// The visible, enabled inputs in frames of allowed hosts.
    pub(super) entries: Vec<Entry<'a>>,
    /// The enabled buttons.
    pub(super) presses: Vec<Press<'a>>,
    pub(super) texts: Vec<PageText<'a>>,
    /// The host of a frame with a password field, if the host is not allowed.
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

    /// Returns whether a text or the title of the page has one of the phrases.
    pub(super) fn says(&self, phrases: &[&str]) -> bool {
        says(&fold(&self.reading.title), phrases) || self.texts.iter().any(|line| says(&line.words, phrases))
    }

    /// Returns whether a heading or the title has one of the phrases.
    pub(super) fn heads(&self, phrases: &[&str]) -> bool {
        let heading = |line: &&PageText<'_>| line.text.kind == TextKind::Heading && says(&line.words, phrases);
        says(&fold(&self.reading.title), phrases) || self.texts.iter().any(|line| heading(&line))
    }

    /// Returns the path and the fragment of the page's URL as words.
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

    /// Returns whether a layer marks itself as a dialog.
    pub(super) fn is_dialog(&self, layer: Option<usize>) -> bool {
        layer.and_then(|layer| self.reading.layers.get(layer)).is_some_and(|layer| layer.dialog)
    }

    /// Returns the button or link that leads to the login.
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

/// Checks that values may be typed into a frame of the origin; the error is its host.
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
