//! Tests of every page phase with every event; `states` prints the table.

use casement_domain::auth_connection::{PageEvent, PageEventRefused, PagePhase, Readings};
use casement_domain::login_page::Mark;
use casement_domain::testing::NOON;
use pretty_assertions::assert_eq;
use time::{Duration, OffsetDateTime};

const LATER: OffsetDateTime = NOON.saturating_add(Duration::MINUTE);

const PHASES: [&str; 6] = ["unopened", "taken over", "examining", "answered", "waiting", "waiting, taken over"];

fn mark(text: &str) -> Mark {
    Mark(text.to_owned())
}

/// Returns readings whose counts differ from each other and from zero.
fn readings() -> Readings {
    Readings { unproductive: 2, external_updates: 3, stale_mark: Some(mark("before")) }
}

fn phase_in(column: usize) -> PagePhase {
    let error = Some("wrong".to_owned());
    match column {
        0 => PagePhase::Unopened { failures: 2 },
        1 => PagePhase::TakenOver { readings: readings(), loading_since: Some(NOON) },
        2 => PagePhase::Examining {
            readings: readings(),
            loading_since: Some(NOON),
            failed_actions: 4,
            previous_refusal: error,
        },
        3 => PagePhase::Answered { readings: readings(), sent_at: NOON, failed_actions: 4, previous_refusal: error },
        _ => waiting(column == 5),
    }
}

fn waiting(taken_over: bool) -> PagePhase {
    PagePhase::Waiting { taken_over, unproductive: 2, unsettled: 1, external_updates: 3, live_view_input: true }
}

fn events() -> [PageEvent; 17] {
    [
        PageEvent::Opened,
        PageEvent::TakenOver,
        PageEvent::Failed,
        PageEvent::NotUnderstood { weight: 2, mark: mark("now") },
        PageEvent::Acted { mark: mark("now") },
        PageEvent::ActionFailed,
        PageEvent::Loading { mark: mark("now"), since: LATER },
        PageEvent::QuestionShown { loading_since: None },
        PageEvent::Sent { mark: mark("now"), refusal: None, at: LATER },
        PageEvent::WaitBegan,
        PageEvent::Watched { unsettled: true },
        PageEvent::Watched { unsettled: false },
        PageEvent::LiveViewInput { accepted: false },
        PageEvent::ExternalUpdated,
        PageEvent::Submitted,
        PageEvent::MovedOn,
        PageEvent::Lost,
    ]
}

/// The documented transitions, one row per event, one column per phase. A new event without a row does not compile.
fn row(event: &PageEvent) -> [Option<&'static str>; 6] {
    let [unopened, taken_over, examining, answered, waiting] =
        ["unopened", "taken over", "examining", "answered", "waiting"].map(Some);
    match event {
        PageEvent::Opened => [examining, None, None, None, None, None],
        PageEvent::TakenOver => [taken_over, None, None, None, None, None],
        PageEvent::Failed => [unopened, taken_over, examining, answered, waiting, waiting],
        PageEvent::NotUnderstood { .. } | PageEvent::Loading { .. } => {
            [None, taken_over, examining, answered, None, None]
        }
        PageEvent::Acted { .. } | PageEvent::ActionFailed => [None, examining, examining, answered, None, None],
        PageEvent::QuestionShown { .. } => [None, taken_over, examining, examining, None, None],
        PageEvent::Sent { .. } => [None, answered, answered, None, None, None],
        PageEvent::WaitBegan => [None, waiting, waiting, waiting, None, None],
        PageEvent::Watched { .. } | PageEvent::LiveViewInput { .. } | PageEvent::ExternalUpdated => {
            [None, None, None, None, waiting, waiting]
        }
        PageEvent::Submitted => [None, None, None, None, examining, taken_over],
        PageEvent::MovedOn => [None, None, None, None, examining, examining],
        PageEvent::Lost => [unopened; 6],
    }
}

#[test]
fn the_page_of_a_login_moves_as_its_table_says_and_not_otherwise() {
    for event in events() {
        for (column, cell) in row(&event).into_iter().enumerate() {
            let before = phase_in(column);
            let unchanged = before.clone();
            let after = before.on(event.clone());
            let expected = cell.ok_or(PageEventRefused { phase: before.name(), event: event.name() });
            assert_eq!(
                after.as_ref().map(PagePhase::name),
                expected.as_ref().copied(),
                "{} + {event:?}",
                PHASES[column]
            );
            assert_eq!(before, unchanged);
        }
    }
}

#[test]
fn an_event_changes_only_the_data_that_it_is_about() {
    let examining = |readings, loading_since, failed_actions, previous_refusal: Option<&str>| PagePhase::Examining {
        readings,
        loading_since,
        failed_actions,
        previous_refusal: previous_refusal.map(str::to_owned),
    };
    let counted = |unproductive, stale_mark: Option<&str>| Readings {
        unproductive,
        external_updates: 3,
        stale_mark: stale_mark.map(mark),
    };
    let new = |unproductive| Readings { unproductive, ..Readings::default() };
    let now = || mark("now");
    let rows = [
        // The count of failures before a page was opened continues.
        (0, PageEvent::Failed, PagePhase::Unopened { failures: 3 }),
        (0, PageEvent::Opened, examining(new(2), None, 0, None)),
        (0, PageEvent::TakenOver, PagePhase::TakenOver { readings: new(2), loading_since: None }),
        // The next reading must differ from an unproductive one.
        (2, PageEvent::Failed, examining(counted(3, Some("before")), Some(NOON), 4, Some("wrong"))),
        (
            2,
            PageEvent::NotUnderstood { weight: 2, mark: now() },
            examining(counted(4, Some("now")), Some(NOON), 4, Some("wrong")),
        ),
        // An action on a page that was taken over makes it the runner's own.
        (1, PageEvent::ActionFailed, examining(counted(2, Some("before")), Some(NOON), 1, None)),
        (1, PageEvent::Acted { mark: now() }, examining(counted(2, Some("now")), Some(NOON), 0, None)),
        (2, PageEvent::ActionFailed, examining(counted(2, Some("before")), Some(NOON), 5, Some("wrong"))),
        (2, PageEvent::Acted { mark: now() }, examining(counted(2, Some("now")), Some(NOON), 0, Some("wrong"))),
        // A page with a question was understood, and has answered the values that were sent.
        (
            3,
            PageEvent::QuestionShown { loading_since: None },
            examining(counted(0, Some("before")), None, 4, Some("wrong")),
        ),
        (
            2,
            PageEvent::Loading { mark: now(), since: LATER },
            examining(counted(0, Some("now")), Some(LATER), 4, Some("wrong")),
        ),
        (
            2,
            PageEvent::Sent { mark: now(), refusal: Some("no".to_owned()), at: LATER },
            PagePhase::Answered {
                readings: counted(2, Some("now")),
                sent_at: LATER,
                failed_actions: 0,
                previous_refusal: Some("no".to_owned()),
            },
        ),
        // Each wait begins with a closed live view and with its full timeout.
        (
            3,
            PageEvent::WaitBegan,
            PagePhase::Waiting {
                taken_over: false,
                unproductive: 2,
                unsettled: 0,
                external_updates: 3,
                live_view_input: false,
            },
        ),
        (4, PageEvent::Submitted, examining(counted(2, None), None, 0, None)),
        (5, PageEvent::MovedOn, examining(counted(0, None), None, 0, None)),
        (4, PageEvent::Lost, PagePhase::default()),
    ];
    for (column, event, expected) in rows {
        assert_eq!(phase_in(column).on(event.clone()), Ok(expected), "{} + {event:?}", PHASES[column]);
    }
    let waiting = [
        (PageEvent::Failed, [3, 1, 3, 1]),
        (PageEvent::Watched { unsettled: true }, [2, 2, 3, 1]),
        (PageEvent::Watched { unsettled: false }, [2, 0, 3, 1]),
        (PageEvent::ExternalUpdated, [2, 1, 4, 1]),
        (PageEvent::LiveViewInput { accepted: false }, [2, 1, 3, 0]),
    ];
    for (event, [unproductive, unsettled, external_updates, input]) in waiting {
        let live_view_input = input == 1;
        let expected =
            PagePhase::Waiting { taken_over: true, unproductive, unsettled, external_updates, live_view_input };
        assert_eq!(self::waiting(true).on(event), Ok(expected));
    }
}

#[test]
fn a_refused_event_of_a_page_is_named() {
    let refused = PagePhase::default().on(PageEvent::MovedOn).expect_err("not waiting");
    assert_eq!(refused.to_string(), "the page of the login is unopened, so 'moved on' is not possible");
}

/// Returns the columns and rows of the table.
pub(crate) fn table() -> (Vec<&'static str>, Vec<Vec<String>>) {
    let mut events = events().to_vec();
    events.dedup_by_key(|event| event.name());
    let cells = |event: &PageEvent| row(event).map(|cell| cell.unwrap_or("–").to_owned());
    let rows = events.iter().map(|event| std::iter::once(event.name().to_owned()).chain(cells(event)).collect());
    ([&["event"][..], &PHASES].concat(), rows.collect())
}
