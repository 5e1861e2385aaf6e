//! Tests of computer control: accepted requests, requests that are refused before any action, and errors.

use std::sync::Arc;
use std::time::Duration;

use casement_domain::browser::{EngineError, EngineFault, Viewport};
use casement_domain::computer::{
    Action, ActionError, ActionRequest, BatchItem, ClickRequest, Computers, DragRequest, MockComputer, MousePath,
    MoveRequest, Point, PressRequest, ScrollRequest, TypeRequest, parse_batch, parse_clipboard,
};
use casement_domain::engine::ConfiguredEngines;
use casement_domain::field::{FieldCode, InvalidInput};
use casement_domain::session::Activity;
use casement_domain::session_operation::{OperationError, SessionOperations};
use casement_domain::testing::{FixedClock, session};
use parking_lot::Mutex;

fn display() -> Viewport {
    Viewport { width: 100, height: 50, refresh_rate: 25 }
}

fn refused<T: std::fmt::Debug>(result: Result<T, InvalidInput>) -> Vec<(String, FieldCode)> {
    let invalid = result.expect_err("it was taken");
    invalid.fields().iter().map(|error| (error.field.clone(), error.code)).collect()
}

fn names<T: std::fmt::Debug>(result: Result<T, InvalidInput>) -> Vec<String> {
    refused(result).into_iter().map(|(field, _)| field).collect()
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn a_place_outside_of_the_display_is_out_of_range() {
    for (x, y, field) in [(100, 0, "x"), (-1, 0, "x"), (0, 50, "y"), (i64::MIN, 0, "x"), (0, i64::MAX, "y")] {
        let request = ClickRequest { x: Some(x), y: Some(y), ..ClickRequest::default() };
        assert_eq!(
            refused(ActionRequest::Click(request).parse(display())),
            [(field.to_owned(), FieldCode::OutOfRange)]
        );
    }
    let corner = MoveRequest { x: Some(99), y: Some(49), ..MoveRequest::default() };
    let Ok(Action::Move(found)) = ActionRequest::Move(corner).parse(display()) else {
        panic!("the corner is on the display")
    };
    assert_eq!((found.to, found.way), (Point { x: 99, y: 49 }, MousePath::Straight));
}

#[test]
fn every_field_that_breaks_a_rule_is_named() {
    let click = ClickRequest {
        button: text("thumb"),
        click_type: text("half"),
        num_clicks: Some(11),
        hold_keys: Some(vec!["Ctrl".to_owned(), "NoKey".to_owned()]),
        ..ClickRequest::default()
    };
    assert_eq!(
        names(ActionRequest::Click(click).parse(display())),
        ["x", "y", "button", "click_type", "num_clicks", "hold_keys[1]"]
    );
    let drag = DragRequest {
        path: Some(vec![vec![1, 2], vec![3]]),
        button: text("back"),
        delay: Some(10_001),
        step_delay_ms: Some(-1),
        steps_per_segment: Some(0),
        duration_ms: Some(5),
        ..DragRequest::default()
    };
    let named = ["path[1]", "button", "delay", "step_delay_ms", "steps_per_segment", "duration_ms"];
    assert_eq!(names(ActionRequest::Drag(drag).parse(display())), named);
    let scroll = ScrollRequest { x: Some(0), y: Some(0), delta_x: Some(1_001), delta_y: Some(-1_001), hold_keys: None };
    assert_eq!(names(ActionRequest::Scroll(scroll).parse(display())), ["delta_x", "delta_y"]);
    let keys = vec!["Ctrl+t".to_owned(), "Ctrl+Nope".to_owned(), "+".to_owned()];
    let press = PressRequest { keys: Some(keys), duration: Some(30_001), hold_keys: Some(vec!["a".to_owned(); 9]) };
    assert_eq!(
        refused(ActionRequest::Press(press).parse(display())),
        [
            ("keys[1]".to_owned(), FieldCode::NotAllowed),
            ("duration".to_owned(), FieldCode::OutOfRange),
            ("hold_keys".to_owned(), FieldCode::TooMany)
        ]
    );
    assert_eq!(names(ActionRequest::Press(PressRequest::default()).parse(display())), ["keys"]);
    for bad in ["a\u{0}b", "\u{1b}", "\u{7f}", "\u{85}", &"x".repeat(65_537)] {
        let typed = TypeRequest { text: text(bad), delay: Some(5_001) };
        assert_eq!(names(ActionRequest::Type(typed).parse(display())), ["text", "delay"]);
    }
    let long = TypeRequest { text: text(&"ä".repeat(32_768)), delay: None };
    assert!(ActionRequest::Type(long).parse(display()).is_ok(), "64 KiB");
    assert_eq!(names(parse_clipboard(None)), ["text"]);
    assert_eq!(names(parse_clipboard(Some("x".repeat((1 << 20) + 1)))), ["text"]);
    assert_eq!(parse_clipboard(Some("\0\r\n".to_owned())).as_deref(), Ok("\0\r\n"));
}

#[test]
fn nothing_may_take_longer_than_an_hour() {
    let typed = |delay| {
        ActionRequest::Type(TypeRequest { text: text(&"x".repeat(60_000)), delay: Some(delay) }).parse(display())
    };
    assert!(typed(60).is_ok());
    assert_eq!(refused(typed(61)), [("body".to_owned(), FieldCode::OutOfRange)]);
    let drag = DragRequest {
        path: Some(vec![vec![0, 0]; 1_000]),
        steps_per_segment: Some(1_000),
        step_delay_ms: Some(10_000),
        ..DragRequest::default()
    };
    assert_eq!(names(ActionRequest::Drag(drag).parse(display())), ["body"]);
}

fn item(kind: &str, members: Vec<ActionRequest>) -> BatchItem {
    BatchItem { kind: text(kind), members }
}

fn sleep(ms: i64) -> ActionRequest {
    ActionRequest::Sleep { duration_ms: Some(ms) }
}

#[test]
fn a_batch_has_exactly_the_member_that_each_type_names() {
    let items = vec![
        item("sleep", vec![sleep(30_000)]),
        item("sleep", vec![sleep(30_001)]),
        item("dance", vec![sleep(1)]),
        item("scroll", vec![sleep(1)]),
        BatchItem::default(),
        item("sleep", vec![sleep(1), ActionRequest::Move(MoveRequest::default())]),
        item("sleep", vec![ActionRequest::Sleep { duration_ms: None }]),
    ];
    assert_eq!(
        refused(parse_batch(Some(items), display())),
        [
            ("actions[1].sleep.duration_ms".to_owned(), FieldCode::OutOfRange),
            ("actions[2].type".to_owned(), FieldCode::NotAllowed),
            ("actions[3].sleep".to_owned(), FieldCode::NotAllowed),
            ("actions[3].scroll".to_owned(), FieldCode::Required),
            ("actions[4].type".to_owned(), FieldCode::Required),
            ("actions[5].move_mouse".to_owned(), FieldCode::NotAllowed),
            ("actions[6].sleep.duration_ms".to_owned(), FieldCode::Required),
        ]
    );
    assert_eq!(names(parse_batch(None, display())), ["actions"]);
    assert_eq!(names(parse_batch(Some(Vec::new()), display())), ["actions"]);
    assert_eq!(names(parse_batch(Some(vec![item("sleep", vec![sleep(1)]); 101]), display())), ["actions"]);
    let actions = parse_batch(Some(vec![item("sleep", vec![sleep(7)])]), display()).expect("valid");
    assert_eq!(actions, [Action::Sleep(Duration::from_millis(7))]);
}

fn computers(computer: MockComputer) -> Computers {
    let activity = Activity::new(Arc::new(FixedClock::default()), Arc::new(FixedClock::default()));
    Computers::new(Arc::new(computer), SessionOperations::new(activity, Arc::new(ConfiguredEngines::local())))
}

fn hung() -> OperationError {
    EngineError::Failed { fault: EngineFault::BrowserHung, message: "no answer".to_owned() }.into()
}

#[tokio::test]
async fn the_failed_action_of_a_batch_is_named_and_one_alone_keeps_its_error() {
    let mut computer = MockComputer::new();
    computer.expect_perform().times(2).returning(|_, _, _| Err(ActionError { at: Some(1), error: hung() }));
    computer.expect_perform().times(1).returning(|_, _, _| Err(hung().into()));
    let computers = computers(computer);
    let items = || Some(vec![item("sleep", vec![sleep(1)]); 2]);
    let Err(OperationError::Failed(message)) = computers.batch(&session(1), items()).await else {
        panic!("no failure")
    };
    assert!(message.starts_with("actions[1]: "), "{message}");
    assert!(matches!(computers.perform(&session(1), sleep(1)).await, Err(OperationError::Engine(_))));
    // No action was begun: the error is that of the unreachable browser.
    assert!(matches!(computers.batch(&session(1), items()).await, Err(OperationError::Engine(_))));
}

#[tokio::test]
async fn a_call_has_time_for_its_pauses() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut computer = MockComputer::new();
    let noted = Arc::clone(&seen);
    computer.expect_perform().returning(move |_, actions, longest| {
        noted.lock().push((actions.len(), longest));
        Ok(())
    });
    let computers = computers(computer);
    computers.perform(&session(1), sleep(30_000)).await.expect("done");
    let typed = ActionRequest::Type(TypeRequest { text: text(&"x".repeat(100)), delay: Some(1_000) });
    computers.perform(&session(1), typed).await.expect("done");
    computers.batch(&session(1), Some(vec![item("sleep", vec![sleep(30_000)]); 100])).await.expect("done");
    let seen = seen.lock();
    for ((count, longest), (actions, pauses)) in seen.iter().zip([(1, 30), (1, 100), (100, 3_000)]) {
        assert_eq!(*count, actions);
        assert!(*longest > Duration::from_secs(pauses) && *longest < Duration::from_secs(pauses + 200), "{longest:?}");
    }
}

#[tokio::test]
async fn no_request_reaches_a_session_that_has_ended() {
    let computers = computers(MockComputer::new());
    let mut ended = session(1);
    ended.browser = None;
    assert!(matches!(computers.mouse(&ended).await, Err(OperationError::Missing(_))));
    assert!(matches!(computers.read_clipboard(&ended).await, Err(OperationError::Missing(_))));
    assert!(matches!(computers.perform(&ended, sleep(1)).await, Err(OperationError::Missing(_))));
    assert!(matches!(computers.write_clipboard(&ended, text("x")).await, Err(OperationError::Missing(_))));
}
