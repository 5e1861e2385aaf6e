//! What callers ask hands to do, before it was checked.

use std::time::Duration;

use super::keys::{Chord, KeySym};
use super::model::{
    Action, Button, Click, ClickKind, Drag, DragMotion, MousePath, Move, Point, Press, Scroll, TypeText,
};
use crate::browser::Viewport;
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, within};

/// Longest clipboard text that is written, in bytes of UTF-8.
pub const MAX_CLIPBOARD: usize = 1 << 20;
/// Longest text typed at once, in bytes of UTF-8.
const MAX_TYPED: usize = 64 << 10;
/// Keys held meanwhile.
const MAX_HELD: usize = 8;
/// Chords pressed by one call.
const MAX_CHORDS: usize = 32;
/// Points of a path.
const MAX_PATH: usize = 1_000;
/// Actions of one batch.
const MAX_ACTIONS: usize = 100;
/// Longest single pause, in milliseconds.
const MAX_PAUSE_MS: u32 = 30_000;
/// The longest that all pauses of one call take together.
const MAX_WHOLE: Duration = Duration::from_secs(3_600);

/// `click_mouse` as asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClickRequest {
    /// Required, from the left.
    pub x: Option<i64>,
    /// Required, from above.
    pub y: Option<i64>,
    /// `left`, `middle`, `right`, `back` or `forward`.
    pub button: Option<String>,
    /// `click`, `down` or `up`.
    pub click_type: Option<String>,
    /// 1 to 10.
    pub num_clicks: Option<i64>,
    /// Keys held meanwhile.
    pub hold_keys: Option<Vec<String>>,
}

/// `move_mouse` as asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoveRequest {
    /// Required, from the left.
    pub x: Option<i64>,
    /// Required, from above.
    pub y: Option<i64>,
    /// Along a curve.
    pub smooth: Option<bool>,
    /// Only with `smooth`.
    pub duration_ms: Option<i64>,
    /// Keys held meanwhile.
    pub hold_keys: Option<Vec<String>>,
}

/// `drag_mouse` as asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DragRequest {
    /// Required: at least two points of two numbers each.
    pub path: Option<Vec<Vec<i64>>>,
    /// `left`, `middle` or `right`.
    pub button: Option<String>,
    /// Before the first move, in milliseconds.
    pub delay: Option<i64>,
    /// After each step, in milliseconds.
    pub step_delay_ms: Option<i64>,
    /// Between two points of the path.
    pub steps_per_segment: Option<i64>,
    /// Along curves.
    pub smooth: Option<bool>,
    /// Only with `smooth`.
    pub duration_ms: Option<i64>,
    /// Keys held meanwhile.
    pub hold_keys: Option<Vec<String>>,
}

/// `scroll` as asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrollRequest {
    /// Required, from the left.
    pub x: Option<i64>,
    /// Required, from above.
    pub y: Option<i64>,
    /// Steps of the wheel to the right.
    pub delta_x: Option<i64>,
    /// Steps of the wheel down.
    pub delta_y: Option<i64>,
    /// Keys held meanwhile.
    pub hold_keys: Option<Vec<String>>,
}

/// `press_key` as asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PressRequest {
    /// Required: chords.
    pub keys: Option<Vec<String>>,
    /// How long they are held, in milliseconds.
    pub duration: Option<i64>,
    /// Keys held meanwhile.
    pub hold_keys: Option<Vec<String>>,
}

/// `type` as asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeRequest {
    /// Required.
    pub text: Option<String>,
    /// After each key, in milliseconds.
    pub delay: Option<i64>,
}

/// `cursor` as asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CursorRequest {
    /// Required.
    pub hidden: Option<bool>,
}

/// `sleep` as asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SleepRequest {
    /// Required.
    pub duration_ms: Option<i64>,
}

/// One member of a batch as asked for: its type, and the member of that name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchItem {
    /// Required.
    pub kind: Option<String>,
    /// Every other member that was given.
    pub members: Vec<ActionRequest>,
}

/// One thing to do, as asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionRequest {
    /// `click_mouse`
    Click(ClickRequest),
    /// `move_mouse`
    Move(MoveRequest),
    /// `drag_mouse`
    Drag(DragRequest),
    /// `scroll`
    Scroll(ScrollRequest),
    /// `press_key`
    Press(PressRequest),
    /// `type_text`
    Type(TypeRequest),
    /// `set_cursor`
    Cursor(CursorRequest),
    /// `sleep`
    Sleep(SleepRequest),
}

/// The names of a batch's members.
const KINDS: [&str; 8] =
    ["click_mouse", "move_mouse", "type_text", "press_key", "scroll", "drag_mouse", "set_cursor", "sleep"];

impl ActionRequest {
    const fn name(&self) -> &'static str {
        match self {
            Self::Click(_) => "click_mouse",
            Self::Move(_) => "move_mouse",
            Self::Drag(_) => "drag_mouse",
            Self::Scroll(_) => "scroll",
            Self::Press(_) => "press_key",
            Self::Type(_) => "type_text",
            Self::Cursor(_) => "set_cursor",
            Self::Sleep(_) => "sleep",
        }
    }

    /// The action on a display of that size.
    ///
    /// # Errors
    /// Every field that breaks a rule.
    pub fn parse(self, display: Viewport) -> Result<Action, InvalidInput> {
        let mut reading = FieldReader { fields: Fields::new(), prefix: String::new(), display };
        let action = reading.action(self);
        finish(reading.fields, action.into_iter().collect()).map(|mut actions| actions.swap_remove(0))
    }
}

/// The actions of a batch, in order.
///
/// # Errors
/// Every field of every action that breaks a rule.
pub fn parse_batch(items: Option<Vec<BatchItem>>, display: Viewport) -> Result<Vec<Action>, InvalidInput> {
    let mut fields = Fields::new();
    let items = fields.take_required("actions", items, |items| match items.len() {
        0 => Err(InvalidValue::new(FieldCode::TooShort, "must have at least 1 action")),
        n if n > MAX_ACTIONS => {
            Err(InvalidValue::new(FieldCode::TooMany, format!("must have at most {MAX_ACTIONS} actions")))
        }
        _ => Ok(items),
    });
    let mut reading = FieldReader { fields, prefix: String::new(), display };
    let mut actions = Vec::new();
    for (index, item) in items.into_iter().flatten().enumerate() {
        reading.prefix = format!("actions[{index}].");
        actions.extend(reading.item(item));
    }
    finish(reading.fields, actions)
}

fn finish(fields: Fields, actions: Vec<Action>) -> Result<Vec<Action>, InvalidInput> {
    fields.finish()?;
    let whole = actions.iter().map(Action::pauses).fold(Duration::ZERO, Duration::saturating_add);
    if whole > MAX_WHOLE {
        let message = format!("all pauses together must not be longer than {} seconds", MAX_WHOLE.as_secs());
        return Err(InvalidInput::of("body", InvalidValue::new(FieldCode::OutOfRange, message)));
    }
    Ok(actions)
}

/// Text for the clipboard.
///
/// # Errors
/// `required`, `too_long`.
pub fn parse_clipboard(text: Option<String>) -> Result<String, InvalidInput> {
    let mut fields = Fields::new();
    let text = fields.take_required("text", text, |text| no_longer(text, MAX_CLIPBOARD));
    fields.finish()?;
    Ok(text.unwrap_or_default())
}

fn no_longer(text: String, most: usize) -> Result<String, InvalidValue> {
    if text.len() > most {
        return Err(InvalidValue::new(FieldCode::TooLong, format!("must have at most {most} bytes in UTF-8")));
    }
    Ok(text)
}

fn required() -> InvalidValue {
    InvalidValue::new(FieldCode::Required, "is required")
}

/// One of a closed list of words.
fn word<T: Copy>(given: &str, words: &[(&str, T)]) -> Result<T, InvalidValue> {
    words.iter().find(|(word, _)| *word == given).map(|(_, value)| *value).ok_or_else(|| {
        let all = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        InvalidValue::new(FieldCode::NotAllowed, format!("must be one of {all}"))
    })
}

const BUTTONS: [(&str, Button); 5] = [
    ("left", Button::Left),
    ("middle", Button::Middle),
    ("right", Button::Right),
    ("back", Button::Back),
    ("forward", Button::Forward),
];
const CLICKS: [(&str, ClickKind); 3] = [("click", ClickKind::Click), ("down", ClickKind::Down), ("up", ClickKind::Up)];

/// Reads the fields of an action; what is refused is noted, and in its place stands something harmless.
struct FieldReader {
    fields: Fields,
    /// Of the fields' names.
    prefix: String,
    display: Viewport,
}

impl FieldReader {
    fn refuse(&mut self, name: &str, bad: InvalidValue) {
        self.fields.refuse(&format!("{}{name}", self.prefix), bad);
    }

    fn take<T: Default>(&mut self, name: &str, value: Result<T, InvalidValue>) -> T {
        value.unwrap_or_else(|bad| {
            self.refuse(name, bad);
            T::default()
        })
    }

    fn number(&mut self, name: &str, value: Option<i64>, default: u32, low: u32, high: u32) -> u32 {
        self.take(name, value.map_or(Ok(default), |value| within(value, low, high)))
    }

    fn pause(&mut self, name: &str, value: Option<i64>, default: u32, high: u32) -> Duration {
        Duration::from_millis(u64::from(self.number(name, value, default, 0, high)))
    }

    /// A duration that has a meaning only on a curve; outer `None`: not on one.
    fn smooth(&mut self, smooth: Option<bool>, duration: Option<i64>) -> Option<Option<Duration>> {
        let smooth = smooth.unwrap_or(false);
        if duration.is_some() && !smooth {
            self.refuse("duration_ms", InvalidValue::new(FieldCode::NotAllowed, "needs smooth"));
        }
        let duration = duration.map(|ms| self.pause("duration_ms", Some(ms), 0, MAX_PAUSE_MS));
        smooth.then_some(duration)
    }

    fn point(&mut self, x: Option<i64>, y: Option<i64>) -> Point {
        let edge = |value: Option<i64>, whole| value.ok_or_else(required).and_then(|v| within(v, 0, whole - 1));
        let (across, down) = (edge(x, self.display.width), edge(y, self.display.height));
        Point { x: self.take("x", across), y: self.take("y", down) }
    }

    fn hold(&mut self, names: Option<Vec<String>>) -> Vec<KeySym> {
        let names = names.unwrap_or_default();
        if names.len() > MAX_HELD {
            self.refuse(
                "hold_keys",
                InvalidValue::new(FieldCode::TooMany, format!("must have at most {MAX_HELD} keys")),
            );
            return Vec::new();
        }
        self.chords("hold_keys", &names).iter().flat_map(|chord| chord.keys().iter().copied()).collect()
    }

    fn chords(&mut self, name: &str, texts: &[String]) -> Vec<Chord> {
        let mut chords = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            match Chord::parse(text) {
                Ok(chord) => chords.push(chord),
                Err(bad) => self.refuse(&format!("{name}[{index}]"), bad),
            }
        }
        chords
    }

    fn path(&mut self, path: Option<Vec<Vec<i64>>>) -> Vec<Point> {
        let Some(path) = path else {
            self.refuse("path", required());
            return Vec::new();
        };
        if path.len() < 2 {
            self.refuse("path", InvalidValue::new(FieldCode::TooShort, "must have at least 2 points"));
        } else if path.len() > MAX_PATH {
            self.refuse("path", InvalidValue::new(FieldCode::TooMany, format!("must have at most {MAX_PATH} points")));
            return Vec::new();
        }
        let mut points = Vec::with_capacity(path.len());
        for (index, point) in path.iter().enumerate() {
            let parsed = match point.as_slice() {
                [x, y] => within(*x, 0, self.display.width - 1)
                    .and_then(|x| within(*y, 0, self.display.height - 1).map(|y| Point { x, y })),
                _ => Err(InvalidValue::new(FieldCode::InvalidFormat, "must be two numbers")),
            };
            match parsed {
                Ok(point) => points.push(point),
                Err(bad) => {
                    // One is enough: a path that is off is off in many places.
                    self.refuse(&format!("path[{index}]"), bad);
                    return Vec::new();
                }
            }
        }
        points
    }

    fn click(&mut self, wish: ClickRequest) -> Click {
        let at = self.point(wish.x, wish.y);
        let button = self.take("button", wish.button.map_or(Ok(Button::Left), |text| word(&text, &BUTTONS)));
        let kind = self.take("click_type", wish.click_type.map_or(Ok(ClickKind::Click), |text| word(&text, &CLICKS)));
        let times = self.number("num_clicks", wish.num_clicks, 1, 1, 10);
        Click { at, button, kind, times, hold: self.hold(wish.hold_keys) }
    }

    fn drag(&mut self, wish: DragRequest) -> Drag {
        let path = self.path(wish.path);
        let button = self.take("button", wish.button.map_or(Ok(Button::Left), |text| word(&text, &BUTTONS[..3])));
        let delay = self.pause("delay", wish.delay, 0, 10_000);
        let step_delay = self.pause("step_delay_ms", wish.step_delay_ms, 50, 10_000);
        let per_segment = self.number("steps_per_segment", wish.steps_per_segment, 10, 1, 1_000);
        let motion = match self.smooth(wish.smooth, wish.duration_ms) {
            Some(duration) => DragMotion::Smooth(duration),
            None => DragMotion::Steps { per_segment, delay: step_delay },
        };
        Drag { path, button, delay, motion, hold: self.hold(wish.hold_keys) }
    }

    fn scroll(&mut self, wish: ScrollRequest) -> Scroll {
        let at = self.point(wish.x, wish.y);
        let steps = |value: Option<i64>| {
            let steps = value.map_or(Ok(0), i32::try_from).ok().filter(|steps| (-1_000..=1_000).contains(steps));
            steps.ok_or_else(|| InvalidValue::new(FieldCode::OutOfRange, "must be from -1000 to 1000"))
        };
        let right = self.take("delta_x", steps(wish.delta_x));
        let down = self.take("delta_y", steps(wish.delta_y));
        Scroll { at, right, down, hold: self.hold(wish.hold_keys) }
    }

    fn press(&mut self, wish: PressRequest) -> Press {
        let chords = match wish.keys {
            None => Err(required()),
            Some(keys) if keys.is_empty() => Err(InvalidValue::new(FieldCode::TooShort, "must have at least 1 key")),
            Some(keys) if keys.len() > MAX_CHORDS => {
                Err(InvalidValue::new(FieldCode::TooMany, format!("must have at most {MAX_CHORDS} keys")))
            }
            Some(keys) => Ok(self.chords("keys", &keys)),
        };
        let chords = self.take("keys", chords);
        let duration = self.pause("duration", wish.duration, 0, MAX_PAUSE_MS);
        Press { chords, duration, hold: self.hold(wish.hold_keys) }
    }

    fn typed(&mut self, wish: TypeRequest) -> TypeText {
        let text = wish.text.ok_or_else(required).and_then(|text| no_longer(text, MAX_TYPED)).and_then(|text| {
            let no_key = |c: &char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
            match text.chars().find(no_key) {
                Some(c) => {
                    let point = u32::from(c);
                    Err(InvalidValue::new(
                        FieldCode::NotAllowed,
                        format!("U+{point:04X} is a control character, which no key types"),
                    ))
                }
                None => Ok(text),
            }
        });
        let text = self.take("text", text);
        TypeText { text, delay: self.pause("delay", wish.delay, 0, 5_000) }
    }

    fn action(&mut self, wish: ActionRequest) -> Option<Action> {
        Some(match wish {
            ActionRequest::Click(wish) => Action::Click(self.click(wish)),
            ActionRequest::Move(wish) => {
                let to = self.point(wish.x, wish.y);
                let way = self.smooth(wish.smooth, wish.duration_ms).map_or(MousePath::Straight, MousePath::Smooth);
                Action::Move(Move { to, way, hold: self.hold(wish.hold_keys) })
            }
            ActionRequest::Drag(wish) => Action::Drag(self.drag(wish)),
            ActionRequest::Scroll(wish) => Action::Scroll(self.scroll(wish)),
            ActionRequest::Press(wish) => Action::Press(self.press(wish)),
            ActionRequest::Type(wish) => Action::Type(self.typed(wish)),
            ActionRequest::Cursor(wish) => {
                Action::Cursor { hidden: self.take("hidden", wish.hidden.ok_or_else(required)) }
            }
            ActionRequest::Sleep(wish) => match wish.duration_ms {
                Some(ms) => Action::Sleep(self.pause("duration_ms", Some(ms), 0, MAX_PAUSE_MS)),
                None => {
                    self.refuse("duration_ms", required());
                    return None;
                }
            },
        })
    }

    /// An item of a batch: exactly the member that its type names.
    fn item(&mut self, item: BatchItem) -> Option<Action> {
        let Some(kind) = item.kind else {
            self.refuse("type", required());
            return None;
        };
        if !KINDS.contains(&kind.as_str()) {
            self.refuse(
                "type",
                InvalidValue::new(FieldCode::NotAllowed, format!("must be one of {}", KINDS.join(", "))),
            );
            return None;
        }
        let (named, others): (Vec<_>, Vec<_>) = item.members.into_iter().partition(|wish| wish.name() == kind);
        for other in &others {
            self.refuse(
                other.name(),
                InvalidValue::new(FieldCode::NotAllowed, format!("does not belong to type {kind}")),
            );
        }
        let Some(wish) = named.into_iter().next() else {
            self.refuse(&kind, required());
            return None;
        };
        let prefix = self.prefix.clone();
        self.prefix = format!("{prefix}{kind}.");
        let action = self.action(wish);
        self.prefix = prefix;
        action
    }
}
