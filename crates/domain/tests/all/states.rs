//! Tests of every state with every event, against tables that also make the page `docs/states.md`.

use std::fmt::Write as _;

use casement_domain::api_key::{ApiKey, KeyStatus, SecretHash};
use casement_domain::auth_connection::{Flow, FlowError, FlowEvent, FlowFailure, FlowRefused, FlowStatus, FlowStep};
use casement_domain::browser::{Browser, BrowserEvent, BrowserRefused, BrowserState};
use casement_domain::name::LabelName;
use casement_domain::project::{Project, ProjectEvent, ProjectRefused, ProjectStatus};
use casement_domain::session::{EndReason, IdOrName, Session, SessionEvent, SessionRefused, SessionState};
use casement_domain::testing::{
    NOON, auth_connection_id, auth_flow, browser_id, leased_session, organization_id, project, session, session_id,
};
use casement_domain::{ApiKeyId, SessionId, UserId};
use pretty_assertions::assert_eq;
use time::{Duration, OffsetDateTime};

use crate::support::{nth, pooled_browser};

const LATER: OffsetDateTime = NOON.saturating_add(Duration::MINUTE);

/// The state after an event; `None`: the event is refused.
type Cell<S> = Option<S>;

const SESSION_PHASES: [&str; 4] = ["starting", "active, on demand", "active, leased", "ended"];

fn session_in(phase: usize, reason: EndReason) -> Session {
    match phase {
        0 => Session { state: SessionState::Starting, browser: None, ..session(1) },
        1 => session(1),
        2 => leased_session(1),
        _ => Session { state: SessionState::Ended(reason), ended_at: Some(NOON), ..leased_session(1) },
    }
}

/// The documented transitions of a session: a row per event, a column per phase. An event needs a row to compile.
fn session_row(event: SessionEvent) -> [Cell<SessionState>; 4] {
    use EndReason as R;
    use SessionState::{Active, Ended};
    match event {
        SessionEvent::Ready(_) => [Some(Active), None, None, None],
        SessionEvent::StartFailed => {
            [Some(Ended(R::StartFailed)), Some(Ended(R::StartFailed)), Some(Ended(R::StartFailed)), None]
        }
        SessionEvent::Delete => [None, Some(Ended(R::Deleted)), Some(Ended(R::Deleted)), None],
        SessionEvent::IdleTimeout => [None, Some(Ended(R::IdleTimeout)), Some(Ended(R::IdleTimeout)), None],
        SessionEvent::Crash => [None, Some(Ended(R::Crashed)), Some(Ended(R::Crashed)), None],
        SessionEvent::OutOfMemory => [None, Some(Ended(R::Oom)), Some(Ended(R::Oom)), None],
        SessionEvent::BrowserClosed => [None, Some(Ended(R::BrowserClosed)), Some(Ended(R::BrowserClosed)), None],
        SessionEvent::BrowserHung => [None, Some(Ended(R::BrowserHung)), Some(Ended(R::BrowserHung)), None],
        SessionEvent::Release => [None, None, Some(Ended(R::Released)), None],
        SessionEvent::Undelivered => {
            [Some(Ended(R::Undelivered)), Some(Ended(R::Undelivered)), Some(Ended(R::Undelivered)), None]
        }
        SessionEvent::NodeDrained => [None, Some(Ended(R::NodeDrained)), Some(Ended(R::NodeDrained)), None],
        SessionEvent::EngineLost => [None, Some(Ended(R::EngineLost)), Some(Ended(R::EngineLost)), None],
        SessionEvent::NodeLost => [Some(Ended(R::NodeLost)), Some(Ended(R::NodeLost)), Some(Ended(R::NodeLost)), None],
    }
}

/// Returns the expected session after a transition to `state` at `LATER`: only the documented fields differ.
fn session_after(before: &Session, state: SessionState) -> Session {
    match state {
        SessionState::Active => {
            Session { state, browser: Some(browser_id(9)), last_active_at: LATER, ..before.clone() }
        }
        SessionState::Ended(_) => Session { state, ended_at: Some(LATER), ..before.clone() },
        SessionState::Starting => unreachable!("nothing leads back to the start"),
    }
}

#[test]
fn a_session_moves_as_its_table_says_and_not_otherwise() {
    for event in SessionEvent::samples(browser_id(9)) {
        for (phase, cell) in session_row(event).into_iter().enumerate() {
            for reason in EndReason::ALL {
                let before = session_in(phase, reason);
                let unchanged = before.clone();
                let expected = match cell {
                    Some(state) => Ok(session_after(&before, state)),
                    None => Err(SessionRefused { id: before.id, state: before.state, event: event.name() }),
                };
                assert_eq!(before.on(event, LATER), expected, "{} + {}", SESSION_PHASES[phase], event.name());
                assert_eq!(before, unchanged);
            }
        }
    }
}

#[test]
fn every_way_for_a_session_to_end_is_reached_by_exactly_one_event() {
    let reached = SessionEvent::samples(browser_id(9)).map(|event| {
        let mut reasons: Vec<_> = session_row(event)
            .into_iter()
            .filter_map(|cell| match cell {
                Some(SessionState::Ended(reason)) => Some(reason),
                _ => None,
            })
            .collect();
        reasons.dedup();
        reasons
    });
    for reason in EndReason::ALL {
        assert_eq!(reached.iter().filter(|reasons| reasons.contains(&reason)).count(), 1, "{reason:?}");
    }
    assert!(reached.iter().all(|reasons| reasons.len() <= 1));
}

const BROWSER_EVENTS: [BrowserEvent; 4] = [
    BrowserEvent::Ready,
    BrowserEvent::Lease(SessionId::from_ulid(nth_const(9))),
    BrowserEvent::GiveBack,
    BrowserEvent::End,
];

const fn nth_const(n: u128) -> ulid::Ulid {
    ulid::Ulid::from_parts(0, n)
}

/// The documented transitions of a browser; the columns are `BrowserState::ALL`.
fn browser_row(event: BrowserEvent) -> [Cell<BrowserState>; 4] {
    use BrowserState::{Ending, Idle, Leased};
    match event {
        BrowserEvent::Ready => [Some(Idle), None, None, None],
        BrowserEvent::Lease(_) => [None, Some(Leased), None, None],
        BrowserEvent::GiveBack => [None, None, Some(Idle), None],
        BrowserEvent::End => [Some(Ending), Some(Ending), Some(Ending), None],
    }
}

#[test]
fn a_browser_moves_as_its_table_says_and_not_otherwise() {
    for event in BROWSER_EVENTS {
        for (state, cell) in BrowserState::ALL.into_iter().zip(browser_row(event)) {
            let session = (state == BrowserState::Leased).then(|| session_id(1));
            let before = Browser { session, ..pooled_browser(1, state) };
            let unchanged = before.clone();
            let expected = match cell {
                Some(to) => {
                    let session = match event {
                        BrowserEvent::Lease(session) => Some(session),
                        BrowserEvent::Ready | BrowserEvent::GiveBack => None,
                        BrowserEvent::End => before.session,
                    };
                    Ok(Browser { state: to, session, ..before.clone() })
                }
                None => Err(BrowserRefused { id: before.id, state, event: event.name() }),
            };
            assert_eq!(before.on(event), expected, "{} + {}", state.as_str(), event.name());
            assert_eq!(before, unchanged);
        }
    }
}

#[test]
fn a_refusal_says_what_where_and_which_event() {
    let refused = session(1).on(SessionEvent::Release, LATER).expect_err("not leased from a pool");
    assert_eq!(refused.to_string(), format!("session {} is active, so 'release' is not possible", session_id(1)));
    let refused = pooled_browser(1, BrowserState::Ending).on(BrowserEvent::Ready).expect_err("ending");
    assert_eq!(refused.to_string(), format!("browser {} is ending, so 'ready' is not possible", browser_id(1)));
}

const PROJECT_COLUMNS: [&str; 4] = ["active", "archived", "active, the default", "archived, the default"];

fn project_in(column: usize) -> Project {
    let status = if column.is_multiple_of(2) { ProjectStatus::Active } else { ProjectStatus::Archived };
    Project { is_default: column >= 2, status, ..project() }
}

/// The documented transitions of a project; `Some(None)`: the project is deleted.
fn project_row(event: ProjectEvent) -> [Cell<Option<ProjectStatus>>; 4] {
    use ProjectStatus::{Active, Archived};
    match event {
        ProjectEvent::Activate => [Some(Some(Active)); 4],
        ProjectEvent::Archive => [Some(Some(Archived)), Some(Some(Archived)), None, None],
        ProjectEvent::Delete => [Some(None), Some(None), None, None],
    }
}

#[test]
fn a_project_moves_as_its_table_says_and_not_otherwise() {
    for event in ProjectEvent::ALL {
        for (column, cell) in project_row(event).into_iter().enumerate() {
            let before = project_in(column);
            let unchanged = before.clone();
            let expected = match cell {
                None => Err(ProjectRefused(event)),
                Some(None) => Ok(None),
                Some(Some(status)) => {
                    let updated_at = if status == before.status { before.updated_at } else { LATER };
                    Ok(Some(Project { status, updated_at, ..before.clone() }))
                }
            };
            assert_eq!(before.on(event, LATER), expected, "{} + {}", PROJECT_COLUMNS[column], event.as_str());
            assert_eq!(before, unchanged);
        }
    }
}

/// The expiry of a key as text and in seconds after `NOON`, whether the key was deleted, and its status.
const KEY_ROWS: [(&str, Option<i64>, bool, KeyStatus); 7] = [
    ("never", None, false, KeyStatus::Active),
    ("in a second", Some(1), false, KeyStatus::Active),
    ("now", Some(0), false, KeyStatus::Expired),
    ("a second ago", Some(-1), false, KeyStatus::Expired),
    ("never", None, true, KeyStatus::Deleted),
    ("in a second", Some(1), true, KeyStatus::Deleted),
    ("a second ago", Some(-1), true, KeyStatus::Deleted),
];

#[test]
fn a_key_is_what_its_table_says() {
    for (text, expires, deleted, status) in KEY_ROWS {
        let key = ApiKey {
            id: ApiKeyId::from_ulid(nth(1)),
            organization: organization_id(),
            project: None,
            name: LabelName::parse("test").expect("a name"),
            hash: SecretHash([0; 32]),
            last4: "AAAA".to_owned(),
            created_by: UserId::from_ulid(nth(2)),
            created_at: NOON - Duration::DAY,
            expires_at: expires.map(|seconds| NOON + Duration::seconds(seconds)),
            deleted_at: deleted.then_some(NOON - Duration::HOUR),
            for_deployment: false,
            policy: None,
        };
        assert_eq!(key.status(NOON), status, "expires {text}, deleted: {deleted}");
    }
}

/// A text in a path, and whether it counts as an identifier.
const PATH_ROWS: [(&str, bool); 7] = [
    ("01k9zk0000000000000000000a", true),
    ("01K9ZK0000000000000000000A", true),
    ("01k9zk000000000000000000a", false),
    ("01k9zk0000000000000000000i", false),
    ("81k9zk0000000000000000000a", false),
    ("checkout", false),
    ("", false),
];

#[test]
fn what_has_the_shape_of_an_identifier_is_one() {
    for (text, is_id) in PATH_ROWS {
        let expected = match text.parse() {
            Ok(id) if is_id => IdOrName::Id(id),
            _ => IdOrName::Name(text.to_owned()),
        };
        assert_eq!(IdOrName::<SessionId>::parse(text), expected, "{text}");
        assert_eq!(matches!(expected, IdOrName::Id(_)), is_id, "{text}");
    }
}

const FLOW_PHASES: [&str; 6] =
    ["DISCOVERING", "AWAITING_INPUT", "AWAITING_EXTERNAL_ACTION", "SUBMITTING", "logged in", "ended"];

fn flow_in(phase: usize, status: FlowStatus) -> Flow {
    let flow = Flow { submission: Some(vec![1]), entered: Some(vec![2]), ..auth_flow(1, auth_connection_id(1)) };
    match phase {
        0 => flow,
        1 => Flow { step: FlowStep::AwaitingInput, ..flow },
        2 => Flow { step: FlowStep::AwaitingExternalAction, external_action: Some("look".to_owned()), ..flow },
        3 => Flow { step: FlowStep::Submitting, ..flow },
        4 => Flow { step: FlowStep::Submitting, post_login_url: Some("https://a".to_owned()), ..flow },
        _ => Flow { status, ..flow },
    }
}

fn flow_events() -> [FlowEvent; 11] {
    [
        FlowEvent::InputRequested { fields: Vec::new(), choices: Vec::new() },
        FlowEvent::Filling,
        FlowEvent::Elsewhere { message: "look".to_owned(), choices: Vec::new() },
        FlowEvent::MovedOn,
        FlowEvent::BegunAgain(session_id(9)),
        FlowEvent::Submitted(vec![3]),
        FlowEvent::LoggedIn("https://a".to_owned()),
        FlowEvent::Completed,
        FlowEvent::Failed(FlowFailure::new(FlowError::Captcha, "a captcha")),
        FlowEvent::Expired,
        FlowEvent::Canceled,
    ]
}

/// The documented transitions of a flow, one row per event, one column per phase: its status and step.
fn flow_row(event: &FlowEvent) -> [Cell<(FlowStatus, FlowStep)>; 6] {
    use FlowStatus::{Canceled, Expired, Failed, InProgress, Success};
    use FlowStep::{AwaitingExternalAction, AwaitingInput, Completed, Discovering, Submitting};
    let to = |step| Some((InProgress, step));
    let ends = |status| {
        let steps = [Discovering, AwaitingInput, AwaitingExternalAction, Submitting, Submitting];
        let [a, b, c, d, e] = steps.map(|step| Some((status, step)));
        [a, b, c, d, e, None]
    };
    match event {
        FlowEvent::InputRequested { .. } => {
            [to(AwaitingInput), to(AwaitingInput), to(AwaitingInput), to(AwaitingInput), None, None]
        }
        FlowEvent::Filling => [to(Submitting), None, None, to(Submitting), None, None],
        FlowEvent::Elsewhere { .. } => {
            let elsewhere = to(AwaitingExternalAction);
            [elsewhere, None, elsewhere, elsewhere, None, None]
        }
        FlowEvent::MovedOn => [None, to(Discovering), to(Discovering), None, None, None],
        FlowEvent::BegunAgain(_) => {
            let again = to(Discovering);
            [again, again, again, again, again, None]
        }
        FlowEvent::Submitted(_) => [None, to(Submitting), to(Submitting), None, None, None],
        FlowEvent::LoggedIn(_) => [to(Submitting), to(Submitting), to(Submitting), to(Submitting), None, None],
        FlowEvent::Completed => [None, None, None, None, Some((Success, Completed)), None],
        FlowEvent::Failed(_) => ends(Failed),
        FlowEvent::Expired => ends(Expired),
        FlowEvent::Canceled => ends(Canceled),
    }
}

#[test]
fn a_flow_moves_as_its_table_says_and_not_otherwise() {
    let over = [FlowStatus::Success, FlowStatus::Failed, FlowStatus::Expired, FlowStatus::Canceled];
    for event in flow_events() {
        for (phase, cell) in flow_row(&event).into_iter().enumerate() {
            for status in over {
                let before = flow_in(phase, status);
                let after = before.on(event.clone(), LATER);
                let cell_text = format!("{} + {}", FLOW_PHASES[phase], event.name());
                let Some((status, step)) = cell else {
                    let refused =
                        FlowRefused { id: before.id, status: before.status, step: before.step, event: event.name() };
                    assert_eq!(after, Err(refused), "{cell_text}");
                    continue;
                };
                let after = after.expect(&cell_text);
                assert_eq!((after.status, after.step, after.updated_at), (status, step, LATER), "{cell_text}");
                if status != FlowStatus::InProgress {
                    assert_eq!(
                        (&after.submission, &after.entered),
                        (&None, &None),
                        "{cell_text}: it keeps what was given"
                    );
                }
            }
        }
    }
}

fn table(page: &mut String, columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    let _ = writeln!(page, "| {} |\n|{}", columns.join(" | "), " --- |".repeat(columns.len()));
    for row in rows {
        let _ = writeln!(page, "| {} |", row.join(" | "));
    }
}

fn states_page() -> String {
    let mut page = String::from(include_str!("states_head.md"));
    page.push_str("\n## Session\n\n");
    let cell_text = |cell: Cell<SessionState>| match cell {
        None => "–".to_owned(),
        Some(SessionState::Ended(reason)) => format!("ended: `{}`", reason.as_str()),
        Some(state) => state.as_str().to_owned(),
    };
    let columns = [&["event"][..], &SESSION_PHASES].concat();
    table(
        &mut page,
        &columns,
        SessionEvent::samples(browser_id(9))
            .into_iter()
            .map(|event| std::iter::once(event.name().to_owned()).chain(session_row(event).map(cell_text)).collect()),
    );
    page.push_str(include_str!("states_session.md"));
    page.push_str("\n## Browser\n\n");
    let columns = [&["event"][..], &BrowserState::ALL.map(BrowserState::as_str)].concat();
    let cell_text = |cell: Cell<BrowserState>| cell.map_or("–", BrowserState::as_str).to_owned();
    table(
        &mut page,
        &columns,
        BROWSER_EVENTS
            .into_iter()
            .map(|event| std::iter::once(event.name().to_owned()).chain(browser_row(event).map(cell_text)).collect()),
    );
    page.push_str(include_str!("states_browser.md"));
    page.push_str("\n## Node\n\n");
    let (columns, rows) = crate::states_node::table();
    table(&mut page, &columns, rows);
    page.push_str(include_str!("states_node.md"));
    page.push_str("\n## Login flow\n\n");
    let cell_text = |cell: Cell<(FlowStatus, FlowStep)>| match cell {
        None => "–".to_owned(),
        Some((FlowStatus::InProgress, step)) => step.as_str().to_owned(),
        Some((FlowStatus::Success, step)) => format!("`SUCCESS`, {}", step.as_str()),
        Some((status, _)) => format!("`{}`", status.as_str()),
    };
    let columns = [&["event"][..], &FLOW_PHASES].concat();
    let row =
        |event: FlowEvent| std::iter::once(event.name().to_owned()).chain(flow_row(&event).map(cell_text)).collect();
    table(&mut page, &columns, flow_events().map(row));
    page.push_str(include_str!("states_flow.md"));
    page.push_str("\n## Page of a login flow\n\n");
    let (columns, rows) = crate::states_login_page::table();
    table(&mut page, &columns, rows);
    page.push_str(include_str!("states_login_page.md"));
    page.push_str("\n## Project\n\n");
    let cell_text = |cell: Cell<Option<ProjectStatus>>| match cell {
        None => "–".to_owned(),
        Some(None) => "deleted".to_owned(),
        Some(Some(status)) => status.as_str().to_owned(),
    };
    table(
        &mut page,
        &[&["event"][..], &PROJECT_COLUMNS].concat(),
        ProjectEvent::ALL
            .into_iter()
            .map(|event| std::iter::once(event.as_str().to_owned()).chain(project_row(event).map(cell_text)).collect()),
    );
    page.push_str(include_str!("states_project.md"));
    page.push_str(
        "\n## API key\n\nNo event changes the status of a key: it follows from its two dates and the time.\n\n",
    );
    table(
        &mut page,
        &["expires", "deleted", "status"],
        KEY_ROWS.map(|(expires, _, deleted, status)| {
            let deleted = if deleted { "yes" } else { "no" };
            vec![expires.to_owned(), deleted.to_owned(), format!("{status:?}").to_lowercase()]
        }),
    );
    page.push_str(include_str!("states_key.md"));
    for (heading, columns, rows, words) in crate::states_apps::tables() {
        let _ = write!(page, "\n## {heading}\n\n");
        table(&mut page, &columns, rows);
        page.push_str(words);
    }
    page
}

#[test]
fn the_page_of_states_says_what_the_tables_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/states.md");
    let page = states_page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &page).expect("docs/states.md can be written");
    }
    let committed = std::fs::read_to_string(path).expect("docs/states.md can be read");
    assert_eq!(committed, page, "run UPDATE_DOCS=1 cargo test -p casement-domain");
}
