//! Tests of callers in the wait queue and of their tickets.

use pretty_assertions::assert_eq;

use super::*;

#[tokio::test]
async fn a_queued_caller_gets_the_browser_granted_to_its_ticket() {
    let (mut world, places) = busy([WaiterEvent::Look]);
    finds(&mut world, [TicketOutcome::Waiting, granted(leased_session(1))]);
    world.engine.expect_hand_out().times(1).returning(|_, _| Ok(()));
    let casement = world.build();
    let mut waiting = in_line(&casement).await;
    match casement.leases.wait(&mut waiting).await.expect("leased") {
        Acquired::Leased(session) => assert_eq!(*session, leased_session(1)),
        _ => panic!("it was its turn"),
    }
    let places = places.lock();
    let [place] = places.as_slice() else { panic!("{places:?}") };
    assert_eq!((place.pool, place.ticket, place.position, place.node), (pool_id(1), waiting.ticket, None, node_id()));
    assert!(place.lasts > Duration::seconds(30), "the waiter leaves before its ticket expires");
}

#[tokio::test]
async fn news_are_expected_before_the_ticket_enters_the_line() {
    let mut world = World::default();
    world.has_pool(pool_of_four());
    world.wait_queue.expect_take_now().returning(|_, _, _| Ok(ImmediateLease::Busy));
    let expected = Arc::new(Mutex::new(None));
    let noted = expected.clone();
    world.tickets.expect_expect().returning(move |ticket| {
        *noted.lock() = Some(ticket);
        Box::new(MockWaiter::new())
    });
    world.wait_queue.expect_enter().returning(move |place, _| {
        assert_eq!(*expected.lock(), Some(place.ticket));
        Ok(QueueEntered::Yes(1))
    });
    in_line(&world.build()).await;
}

#[tokio::test]
async fn a_wait_ends_without_a_browser_when_time_is_up_or_the_server_stops() {
    for event in [WaiterEvent::TimeUp, WaiterEvent::Stopping] {
        let (mut world, _) = busy([event]);
        finds(&mut world, [TicketOutcome::Waiting]);
        world.wait_queue.expect_leave().times(1).returning(|_| Ok(TicketOutcome::Gone));
        let casement = world.build();
        let mut waiting = in_line(&casement).await;
        assert!(matches!(casement.leases.wait(&mut waiting).await, Ok(Acquired::TimeUp)), "{event:?}");
    }
}

#[tokio::test]
async fn a_browser_granted_at_the_last_moment_is_the_callers() {
    let (mut world, _) = busy([WaiterEvent::TimeUp]);
    finds(&mut world, [TicketOutcome::Waiting]);
    world.wait_queue.expect_leave().times(1).returning(|_| Ok(granted(leased_session(1))));
    world.engine.expect_hand_out().times(1).returning(|_, _| Ok(()));
    let casement = world.build();
    let mut waiting = in_line(&casement).await;
    assert!(matches!(casement.leases.wait(&mut waiting).await, Ok(Acquired::Leased(_))));
}

#[tokio::test]
async fn a_granted_browser_that_does_not_answer_keeps_the_queue_position() {
    let (mut world, places) = busy([]);
    let rows = world.keep_sessions([leased_session(1)]);
    finds(&mut world, [granted(leased_session(1)), granted(leased_session(2))]);
    world.engine.expect_hand_out().times(2).returning(|id, _| if id == browser_id(1) { Err(hung()) } else { Ok(()) });
    world.expect_cleanup(browser_id(1));
    world.expect_close(session_id(1), EndReason::StartFailed);
    world.expect_wakes(1);
    let casement = world.build();
    let mut waiting = in_line(&casement).await;
    match casement.leases.wait(&mut waiting).await.expect("leased") {
        Acquired::Leased(session) => assert_eq!(session.id, session_id(2)),
        _ => panic!("it was its turn again"),
    }
    assert_eq!(rows.states(), [SessionState::Ended(EndReason::StartFailed)]);
    let places = places.lock();
    let [first, again] = places.as_slice() else { panic!("{places:?}") };
    assert_eq!((first.position, again.position), (None, Some(17)));
    assert_eq!(first.ticket, again.ticket);
    assert_ne!(first.lease.session, again.lease.session, "the id of a lease that failed is not used again");
}

#[tokio::test]
async fn a_browser_granted_at_the_last_moment_that_does_not_answer_ends_the_wait() {
    let (mut world, places) = busy([WaiterEvent::TimeUp]);
    world.keep_sessions([leased_session(1)]);
    finds(&mut world, [TicketOutcome::Waiting]);
    world.wait_queue.expect_leave().times(1).returning(|_| Ok(granted(leased_session(1))));
    world.engine.expect_hand_out().times(1).returning(|_, _| Err(hung()));
    world.expect_cleanup(browser_id(1));
    world.expect_close(session_id(1), EndReason::StartFailed);
    world.expect_wakes(1);
    let casement = world.build();
    let mut waiting = in_line(&casement).await;
    assert!(matches!(casement.leases.wait(&mut waiting).await, Ok(Acquired::TimeUp)));
    assert_eq!(places.lock().len(), 1, "it is not in line any more");
}

#[tokio::test]
async fn a_ticket_that_could_not_leave_leaves_once_the_store_answers() {
    let mut world = World::default();
    let rows = world.keep_sessions([leased_session(1)]);
    let mut answers = [Err(store_down()), Err(store_down()), Ok(granted(leased_session(1)))].into_iter();
    world.wait_queue.expect_leave().times(3).returning(move |_| answers.next().expect("no more is asked"));
    world.expect_close(session_id(1), EndReason::StartFailed);
    world.expect_wakes(1);
    world.expect_cleanup(browser_id(1));
    let casement = world.build();
    casement.leases.abandon(TicketId::from_ulid(nth(1))).await.expect_err("it is away");
    casement.leases.reconcile().await.expect_err("it still is");
    casement.leases.reconcile().await.expect("it answers");
    casement.leases.reconcile().await.expect("and the browser that it got ends");
    assert_eq!(rows.states(), [SessionState::Ended(EndReason::StartFailed)]);
}

#[tokio::test]
async fn what_may_still_be_carried_out_late_is_looked_for_a_minute_long() {
    let mut world = World::default();
    let mut answers = [Err(store_down()), Ok(TicketOutcome::Gone), Ok(TicketOutcome::Gone)].into_iter();
    world.wait_queue.expect_leave().times(3).returning(move |_| answers.next().expect("no more is asked"));
    let casement = world.build();
    casement.leases.abandon(TicketId::from_ulid(nth(1))).await.expect_err("it is away");
    casement.leases.reconcile().await.expect("it is not there, or not yet");
    casement.clock.advance(Duration::MINUTE);
    casement.leases.reconcile().await.expect("it will not come any more");
    casement.leases.reconcile().await.expect("nothing is left to do");
}

#[tokio::test]
async fn a_ticket_that_was_removed_with_its_lost_node_enters_again_at_its_position() {
    let (mut world, entries) = busy([WaiterEvent::Look]);
    finds(&mut world, [TicketOutcome::Gone, TicketOutcome::Waiting, TicketOutcome::NameTaken]);
    let casement = world.build();
    let mut waiting = in_line(&casement).await;
    assert!(casement.leases.wait(&mut waiting).await.is_err());
    let entries = entries.lock();
    let positions: Vec<_> = entries.iter().map(|entry| entry.position).collect();
    assert_eq!(positions, [None, Some(17)]);
    assert_eq!(entries[0].ticket, entries[1].ticket);
    assert_ne!(entries[0].lease.session, entries[1].lease.session, "the session of a lease may have been stored");
}
