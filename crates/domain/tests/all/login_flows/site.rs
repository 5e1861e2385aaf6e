//! A fake site: the readings of its pages, and the actions that they accept.

use std::sync::Arc;

use async_trait::async_trait;
use casement_domain::BrowserId;
use casement_domain::login_page::{
    Act, Button, ButtonKind, Frame, Handle, Input, LoginPageError, LoginPages, Mark, ReadCondition, Reading, Text,
    TextKind,
};
use casement_domain::testing::FixedClock;
use parking_lot::Mutex;
use secrecy::ExposeSecret as _;
use time::Duration;

pub(super) const ORIGIN: &str = "https://d1.example";

/// The calls that the site received so far.
#[derive(Default)]
pub(super) struct Done {
    pub(super) opened: Vec<String>,
    pub(super) reads: usize,
    /// The number of calls with actions, including failed ones.
    pub(super) tried: usize,
    /// The actions that succeeded, as text.
    pub(super) acts: Vec<String>,
}

impl Done {
    /// Returns whether the text was typed into any input.
    pub(super) fn typed(&self, text: &str) -> bool {
        self.acts.iter().any(|act| act.ends_with(&format!("={text}")))
    }

    pub(super) fn pressed(&self, what: &str) -> usize {
        self.acts.iter().filter(|act| *act == &format!("click {what}")).count()
    }
}

pub(super) type Reads = dyn Fn(&Done) -> Result<Reading, LoginPageError> + Send + Sync;
pub(super) type Takes = dyn Fn(&Done, &Act) -> Result<(), LoginPageError> + Send + Sync;

/// A fake site with functions that return its readings and accept actions.
pub(super) struct Site {
    pub(super) done: Arc<Mutex<Done>>,
    pub(super) clock: Arc<FixedClock>,
    pub(super) shows: Box<Reads>,
    pub(super) takes: Box<Takes>,
}

pub(super) fn words(act: &Act) -> String {
    match act {
        Act::Fill { into, text, .. } => format!("{}={}", into.0, text.expose_secret()),
        Act::FillCode { into, code, .. } => format!("{}={}", into[0].0, code.expose_secret()),
        Act::Check { what, on } => format!("check {} {on}", what.0),
        Act::Choose { from, option, .. } => format!("{}={option}", from.0),
        Act::Click { what, .. } => format!("click {}", what.0),
        Act::Press { .. } => "press".to_owned(),
    }
}

#[async_trait]
impl LoginPages for Site {
    async fn open(&self, _: BrowserId, url: &str) -> Result<(), LoginPageError> {
        self.done.lock().opened.push(url.to_owned());
        Ok(())
    }

    async fn read(&self, _: BrowserId, wait: ReadCondition) -> Result<Reading, LoginPageError> {
        let mut done = self.done.lock();
        done.reads += 1;
        let reading = (self.shows)(&done)?;
        // A settled and changed page is read at once, any other page when the wait is over.
        let same = wait.differs_from.as_ref().is_some_and(|mark| *mark == reading.mark);
        self.clock.advance(if same || !reading.settled {
            wait.within.try_into().expect("it can be")
        } else {
            Duration::ZERO
        });
        Ok(reading)
    }

    async fn act(&self, _: BrowserId, acts: Vec<Act>) -> Result<(), LoginPageError> {
        let mut done = self.done.lock();
        done.tried += 1;
        for act in acts {
            (self.takes)(&done, &act)?;
            done.acts.push(words(&act));
        }
        Ok(())
    }

    async fn screenshot(&self, _: BrowserId) -> Result<Vec<u8>, LoginPageError> {
        Ok(b"png".to_vec())
    }
}

/// Returns a settled page of the site.
pub(super) fn page(path: &str, mark: &str) -> Reading {
    let frame = Frame { origin: ORIGIN.to_owned(), url: format!("{ORIGIN}{path}") };
    Reading {
        url: format!("{ORIGIN}{path}"),
        title: "Shop".to_owned(),
        language: "en".to_owned(),
        status: Some(200),
        frames: vec![frame],
        settled: true,
        mark: Mark(mark.to_owned()),
        ..Reading::default()
    }
}

pub(super) fn input(place: usize, name: &str, kind: &str) -> Input {
    Input {
        place,
        handle: Handle(name.to_owned()),
        form: Some(0),
        kind: kind.to_owned(),
        name: name.to_owned(),
        id: name.to_owned(),
        label: name.to_owned(),
        required: true,
        visible: true,
        ..Input::default()
    }
}

pub(super) fn button(place: usize, label: &str, kind: ButtonKind) -> Button {
    let form = (kind == ButtonKind::Submit).then_some(0);
    Button { place, handle: Handle(label.to_owned()), form, kind, label: label.to_owned(), ..Button::default() }
}

pub(super) fn text(place: usize, kind: TextKind, content: &str) -> Text {
    Text { place, kind, text: content.to_owned(), ..Text::default() }
}

pub(super) fn asks(path: &str, heading: &str, inputs: Vec<Input>) -> Reading {
    let texts = vec![text(0, TextKind::Heading, heading)];
    let send = button(90, "Continue", ButtonKind::Submit);
    Reading { inputs, texts, buttons: vec![send], ..page(path, heading) }
}

pub(super) fn login() -> Reading {
    let inputs = vec![input(1, "username", "text"), input(2, "password", "password")];
    asks("/login", "Sign in", inputs)
}

pub(super) fn code_by_text_message() -> Reading {
    let code = Input { autocomplete: "one-time-code".to_owned(), ..input(2, "code", "text") };
    let mut reading = asks("/code", "Enter the code", vec![code]);
    reading.texts.push(text(1, TextKind::Plain, "We sent a text message (SMS) with a code to your phone ••• 42"));
    reading
}

/// Returns a page for a code in six boxes.
pub(super) fn six_boxes() -> Reading {
    let one =
        |n: usize| Input { max_length: Some(1), mode: "numeric".to_owned(), ..input(n, &format!("digit {n}"), "text") };
    asks("/code", "Enter the verification code", (1..=6).map(one).collect())
}

pub(super) fn home() -> Reading {
    let mut reading = page("/home", "home");
    reading.texts = vec![text(1, TextKind::Heading, "Your orders")];
    reading.buttons = vec![button(2, "Sign out", ButtonKind::Link)];
    reading
}

pub(super) fn says(mut reading: Reading, content: &str) -> Reading {
    reading.texts.push(text(3, TextKind::Alert, content));
    reading.mark = Mark(format!("{} {content}", reading.mark.0));
    reading
}

pub(super) fn restless(reading: Reading, done: &Done) -> Reading {
    Reading { settled: false, mark: Mark(format!("{} {}", reading.mark.0, done.reads)), ..reading }
}

pub(super) fn accept_all(_: &Done, _: &Act) -> Result<(), LoginPageError> {
    Ok(())
}

/// Logs in with the right password, without any further step.
pub(super) fn plain(done: &Done) -> Result<Reading, LoginPageError> {
    Ok(if done.typed("right") { home() } else { login() })
}
