//! A viewer's mouse and keyboard on a display: what the page sends becomes what computer control does.

use std::time::Duration;

use casement_domain::{
    computer::{Action, Button, Click, ClickKind, Computers, KeySym, MousePath, Move, Point, Scroll, TypeText},
    session::Session,
};
use tokio::sync::mpsc;
use tracing::Instrument as _;

use super::{
    held_keys::{HeldKeys, press},
    input::{self, FromPage, Mouse, MouseKind, Wheel},
};

/// What may wait to be done. A viewer whose session does nothing any more loses what comes after.
const QUEUE: usize = 256;
/// Done in one call at most.
const MAX_PARALLEL: usize = 50;
/// What one step of the wheel scrolls, in the page's pixels.
const WHEEL_STEP: f64 = 100.0;
/// Steps that one turn may make.
const MAX_STEPS: f64 = 50.0;

/// Something to be done, in order.
#[derive(Debug)]
enum Doing {
    Action(Action),
    /// Text for the clipboard, which is pasted then.
    Paste(String),
}

/// The way to the hands of a session, for one viewer. When it is dropped, buttons and keys that are still pressed are let go.
pub(super) struct ViewerInput {
    queue: mpsc::Sender<Doing>,
    held: HeldKeys,
    /// Turns of the wheel that were too small for a step.
    rest: (f64, f64),
}

impl ViewerInput {
    /// Begins to do what it is told. To be called on a worker of the server.
    pub(super) fn new(computers: Computers, session: Session) -> Self {
        let (queue, doing) = mpsc::channel(QUEUE);
        actix_web::rt::spawn(work(computers, session, doing).in_current_span());
        Self { queue, held: HeldKeys::default(), rest: (0.0, 0.0) }
    }

    /// Does what a message of the page means on a display of this size.
    pub(super) fn obey(&mut self, message: &FromPage, display: (u32, u32)) {
        match message {
            FromPage::Mouse(mouse) => self.mouse(mouse, display),
            FromPage::Wheel(wheel) => self.wheel(wheel, display),
            FromPage::Key(key) if key.is_plain() => {
                let actions = self.held.key(key);
                self.all(actions);
            }
            FromPage::Text { s, paste } if s.len() <= input::MAX_TEXT => {
                // Keys that are held would change it.
                let actions = self.held.nothing();
                self.all(actions);
                // What would take too long key by key is pasted.
                let by_key = !paste && s.len() <= input::MAX_TYPED;
                self.say(Some(if by_key { typed(s) } else { Doing::Paste(s.clone()) }));
            }
            _ => {}
        }
    }

    fn say(&self, doing: Option<Doing>) {
        if let Some(doing) = doing
            && self.queue.try_send(doing).is_err()
        {
            tracing::debug!("a viewer's input was dropped: the session does nothing");
        }
    }

    fn all(&self, actions: Vec<Action>) {
        actions.into_iter().for_each(|action| self.say(Some(Doing::Action(action))));
    }

    fn mouse(&mut self, mouse: &Mouse, display: (u32, u32)) {
        // A move says nothing of keys that were pressed elsewhere; a button does.
        let hold = match mouse.k {
            MouseKind::Move => Vec::new(),
            MouseKind::Down | MouseKind::Up => self.modifiers(mouse.m),
        };
        let at = place(mouse.x, mouse.y, display);
        let click = |kind| {
            let button = match mouse.b {
                input::Button::None => return None,
                input::Button::Left => Button::Left,
                input::Button::Middle => Button::Middle,
                input::Button::Right => Button::Right,
                input::Button::Back => Button::Back,
                input::Button::Forward => Button::Forward,
            };
            Some(Action::Click(Click { at, button, kind, times: 1, hold: hold.clone() }))
        };
        let action = match mouse.k {
            MouseKind::Move => Some(Action::Move(Move { to: at, way: MousePath::Straight, hold: Vec::new() })),
            MouseKind::Down => click(ClickKind::Down),
            MouseKind::Up => click(ClickKind::Up),
        };
        self.say(action.map(Doing::Action));
    }

    /// Lets go of those that are not held any more, and answers those that are to be held for this alone.
    fn modifiers(&mut self, bits: u8) -> Vec<KeySym> {
        let (actions, missing) = self.held.follow(bits);
        self.all(actions);
        missing
    }

    fn wheel(&mut self, wheel: &Wheel, display: (u32, u32)) {
        let steps = |turned: f64, rest: &mut f64| {
            let turned = *rest + turned / WHEEL_STEP;
            let whole = turned.trunc().clamp(-MAX_STEPS, MAX_STEPS);
            *rest = turned.fract();
            // Cut to fifty just now.
            whole as i32
        };
        let (right, down) = (steps(wheel.dx, &mut self.rest.0), steps(wheel.dy, &mut self.rest.1));
        if (right, down) != (0, 0) {
            let (at, hold) = (place(wheel.x, wheel.y, display), self.modifiers(wheel.m));
            self.say(Some(Doing::Action(Action::Scroll(Scroll { at, right, down, hold }))));
        }
    }
}

/// A pixel of the display; `x` and `y` run from 0 to 1 over it.
fn place(x: f64, y: f64, display: (u32, u32)) -> Point {
    let along = |part: f64, whole: u32| ((part.clamp(0.0, 1.0) * f64::from(whole)) as u32).min(whole.saturating_sub(1));
    Point { x: along(x, display.0), y: along(y, display.1) }
}

fn typed(text: &str) -> Doing {
    let text = text.chars().filter(|character| !character.is_control() || matches!(character, '\n' | '\t')).collect();
    Doing::Action(Action::Type(TypeText { text, delay: Duration::ZERO }))
}

async fn work(computers: Computers, session: Session, mut doing: mpsc::Receiver<Doing>) {
    let mut pressed = PressedKeys::default();
    let mut waiting = None;
    loop {
        let next = match waiting.take() {
            Some(next) => Some(next),
            None => doing.recv().await,
        };
        let done = match next {
            Some(Doing::Paste(text)) => paste(&computers, &session, text).await,
            Some(Doing::Action(action)) => {
                let mut actions = vec![action];
                waiting = gather(&mut actions, &mut doing);
                actions.iter().for_each(|action| pressed.note(action));
                computers.all(&session, actions).await.map_err(|broke| broke.error.to_string())
            }
            None => break,
        };
        if let Err(error) = done {
            tracing::debug!(%error, "a viewer's input was not done");
        }
    }
    let up = pressed.let_go();
    if !up.is_empty() {
        let _ = computers.all(&session, up).await;
    }
}

/// Takes what waits behind `actions`, of moves one after the other the last; answers what must be done after these.
fn gather(actions: &mut Vec<Action>, doing: &mut mpsc::Receiver<Doing>) -> Option<Doing> {
    while actions.len() < MAX_PARALLEL {
        match doing.try_recv() {
            Ok(Doing::Action(action)) => {
                if let (Action::Move(_), Some(last @ Action::Move(_))) = (&action, actions.last_mut()) {
                    *last = action;
                } else {
                    actions.push(action);
                }
            }
            Ok(paste) => return Some(paste),
            Err(_) => break,
        }
    }
    None
}

/// What is down.
#[derive(Default)]
struct PressedKeys {
    buttons: Vec<Click>,
    keys: Vec<KeySym>,
}

impl PressedKeys {
    fn note(&mut self, action: &Action) {
        match action {
            Action::Click(click) => {
                self.buttons.retain(|held| held.button != click.button);
                if click.kind == ClickKind::Down {
                    self.buttons.push(click.clone());
                }
            }
            Action::Key { key, down } => {
                self.keys.retain(|held| held != key);
                if *down {
                    self.keys.push(*key);
                }
            }
            _ => {}
        }
    }

    /// What lets go of all of it.
    fn let_go(self) -> Vec<Action> {
        let button = |click: Click| Action::Click(Click { kind: ClickKind::Up, hold: Vec::new(), ..click });
        let key = |key: KeySym| Action::Key { key, down: false };
        self.keys.into_iter().rev().map(key).chain(self.buttons.into_iter().map(button)).collect()
    }
}

async fn paste(computers: &Computers, session: &Session, text: String) -> Result<(), String> {
    computers.write_clipboard(session, Some(text)).await.map_err(|error| error.to_string())?;
    computers
        .all(session, press("v", KeySym::named("Control_L").into_iter().collect()).into_iter().collect())
        .await
        .map_err(|broke| broke.error.to_string())
}
