//! Connections to the database: a bounded pool, and named calls that are measured and have a timeout.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use deadpool::managed::{Manager, Metrics, Object, Pool, QueueMode, RecycleError, RecycleResult};
use diesel::ConnectionError;
use diesel_async::{AnsiTransactionManager, AsyncPgConnection, TransactionManager};
use tokio::runtime::Handle;
use tracing::{Instrument as _, Span};

use casement_domain::StoreError;

use crate::connect::{Address, CONNECT_LIMIT};
use crate::database_config::DatabaseConfig;
use crate::decisions::Decisions;
use crate::error::{CallError, Unreachable};
use crate::generation::Generation;
use crate::idle_connection::IdleConnection;
use crate::pipelined::{PipelinedConnection, PipelinedConnections, Slot};
use crate::refusals::Refusals;

/// How long a call waits for a free connection while no other call succeeds: then the database is unreachable.
const WAIT_LIMIT: Duration = Duration::from_millis(1500);
/// How long a call waits for a free connection while other calls succeed: then the database is only busy.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// The timeout for the work on a connection. With [`WAIT_LIMIT`] before it, a call to an unreachable database takes up
/// to five seconds.
const WORK_LIMIT: Duration = Duration::from_millis(3500);
/// The connections to the database, shared by all repositories. Cheap to clone.
#[derive(Clone)]
pub struct Database {
    pool: Pool<Opener>,
    reads: PipelinedConnections,
    leases: PipelinedConnections,
    shared: Arc<Address>,
    /// The generation of all connections.
    generation: Generation,
    decisions: Decisions,
    /// The number of calls that succeeded, which distinguishes a busy database from an unreachable one.
    answered: Arc<AtomicU64>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("connections", &self.pool.status()).finish()
    }
}

impl Database {
    /// Creates a pool that opens its connections on the current runtime, whichever runtime requests them later: a
    /// connection belongs to the runtime that opened it, and the single-threaded runtime of a web worker may stall or
    /// end. Opens no connection yet.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn new(config: &DatabaseConfig) -> Self {
        let generation = Generation::default();
        let manager =
            Opener { address: config.address().clone(), generation: generation.clone(), main: Handle::current() };
        // Building fails only for a pool with timeouts and no runtime; the timeouts here are outside of the pool.
        // LIFO, since the connection that was used last has its statements prepared and planned.
        let pool = Pool::builder(manager)
            .max_size(config.connections())
            .queue_mode(QueueMode::Lifo)
            .build()
            .unwrap_or_else(|e| unreachable!("{e}"));
        let shared = Arc::new(config.planned_once());
        let (reads, leases) = (PipelinedConnections::new(), PipelinedConnections::new());
        let (decisions, answered) = (Decisions::default(), Arc::default());
        Self { pool, reads, leases, shared, generation, decisions, answered }
    }

    pub(crate) fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// Runs one statement that changes something: measured as `operation`, with a timeout.
    pub(crate) fn call<T>(
        &self,
        operation: &'static str,
        work: impl AsyncFnOnce(&mut AsyncPgConnection) -> Result<T, CallError>,
    ) -> impl Future<Output = Result<T, StoreError>> {
        self.run(operation, Kind::Change, work, Err)
    }

    /// Runs statements that only read; otherwise like [`call`](Self::call).
    pub(crate) fn fetch<T>(
        &self,
        operation: &'static str,
        work: impl AsyncFnOnce(&mut AsyncPgConnection) -> Result<T, CallError>,
    ) -> impl Future<Output = Result<T, StoreError>> {
        self.run(operation, Kind::Read, work, Err)
    }

    /// Runs a read that is always short, on the connection that a web worker shares among its reads: others may wait
    /// behind it. Outside of a web worker it is like [`fetch`](Self::fetch).
    pub(crate) async fn read<T>(
        &self,
        operation: &'static str,
        work: impl AsyncFnOnce(&AsyncPgConnection) -> Result<T, CallError>,
    ) -> Result<T, StoreError> {
        match self.reads.here(self.generation.now()) {
            Some(slot) => self.run_shared(operation, Kind::Read, (self.reads, &slot), work).await,
            None => self.fetch(operation, async |connection| work(connection).await).await,
        }
    }

    /// Runs the short statement of a lease, on the connection that a web worker shares among its leases: others may
    /// wait behind it. Outside of a web worker it is like [`call`](Self::call).
    pub(crate) async fn lease<T>(
        &self,
        operation: &'static str,
        work: impl AsyncFnOnce(&AsyncPgConnection) -> Result<T, CallError>,
    ) -> Result<T, StoreError> {
        match self.leases.here(self.generation.now()) {
            Some(slot) => self.run_shared(operation, Kind::Change, (self.leases, &slot), work).await,
            None => self.call(operation, async |connection| work(connection).await).await,
        }
    }

    /// Runs the work of a call, in a transaction if it is one. This function is compiled for each call of the
    /// repositories, so what does not depend on the work is elsewhere.
    async fn run<T>(
        &self,
        operation: &'static str,
        kind: Kind,
        work: impl AsyncFnOnce(&mut AsyncPgConnection) -> Result<T, CallError>,
        meaning: impl FnOnce(CallError) -> Result<T, CallError>,
    ) -> Result<T, StoreError> {
        let call = Call::begin(operation);
        let mut connection = match self.connection().instrument(call.span.clone()).await {
            Ok(connection) => Guard(Some(connection)),
            Err(error) => return self.end(&call, Err(error)),
        };
        let working = connection.get().run(&call.span, async |connection| {
            call.start(connection, kind).await?;
            let answer = work(connection).await;
            call.complete(connection, kind, answer.is_ok()).await.and(answer)
        });
        let answer = match tokio::time::timeout(WORK_LIMIT, working).await {
            Ok(Ok(answer)) => {
                let used = connection.get();
                let answer = answer.map_err(|error| self.judged(error, used.refusals(), used.generation()));
                // Released only here: after a call that failed or was dropped, the connection may still be busy.
                connection.release();
                answer.or_else(meaning)
            }
            Ok(Err(lost)) => Err(CallError::Unreachable(Unreachable::Lost(lost))),
            Err(_elapsed) => Err(CallError::Unreachable(Unreachable::TooSlow(WORK_LIMIT))),
        };
        self.end(&call, answer)
    }

    async fn run_shared<T>(
        &self,
        operation: &'static str,
        kind: Kind,
        (connections, slot): (PipelinedConnections, &Slot),
        work: impl AsyncFnOnce(&AsyncPgConnection) -> Result<T, CallError>,
    ) -> Result<T, StoreError> {
        let call = Call::begin(operation);
        let working = async {
            let shared = self.shared(slot).await?;
            call.sent.store(kind != Kind::Read, Ordering::Relaxed);
            let answer = Box::pin(work(shared.connection())).await;
            answer.map_err(|error| self.judged(error, shared.refusals(), shared.generation()))
        };
        let answer = match tokio::time::timeout(WORK_LIMIT, working.instrument(call.span.clone())).await {
            Ok(answer) => answer,
            Err(_elapsed) => {
                // Drops the connection, since all calls behind this one would be delayed too.
                connections.forget();
                Err(CallError::Unreachable(Unreachable::TooSlow(WORK_LIMIT)))
            }
        };
        self.end(&call, answer)
    }

    /// Adds the code with which the server refused. A connection that only reads is not used again, nor is any that was
    /// opened before: the server may have become a standby, or its name may lead to another one by now.
    fn judged(&self, error: CallError, refusals: &Refusals, generation: u64) -> CallError {
        if error.is_read_only() {
            self.generation.end(generation);
        }
        error.with_code(refusals)
    }

    /// Returns the connection of a slot, and opens it for the first user.
    async fn shared<'s>(&self, slot: &'s Slot) -> Result<&'s PipelinedConnection, CallError> {
        if self.pool.is_closed() {
            return Err(CallError::Unreachable(Unreachable::NoConnection("the pool is closed".to_owned())));
        }
        let opening = async {
            let opening = PipelinedConnection::open(&self.shared, self.generation.now());
            let opened = tokio::time::timeout(CONNECT_LIMIT, opening).await;
            opened.map_err(|_elapsed| Unreachable::TooSlow(CONNECT_LIMIT))?.map_err(Unreachable::from)
        };
        slot.get_or_try_init(|| opening).await.map_err(CallError::Unreachable)
    }

    fn end<T>(&self, call: &Call, answer: Result<T, CallError>) -> Result<T, StoreError> {
        call.measure(answer.as_ref().err());
        match answer {
            Ok(value) => {
                self.answered.fetch_add(1, Ordering::Relaxed);
                Ok(value)
            }
            Err(error) => Err(call.failed(error)),
        }
    }

    async fn connection(&self) -> Result<Pooled, CallError> {
        let started = Instant::now();
        // One future for all rounds, so that the call keeps its place in the pool's queue.
        let mut getting = pin!(self.pool.get());
        let mut answered = self.answered.load(Ordering::Relaxed);
        loop {
            match tokio::time::timeout(WAIT_LIMIT, &mut getting).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => return Err(CallError::Unreachable(Unreachable::NoConnection(error.to_string()))),
                Err(_elapsed) => {
                    let now_answered = self.answered.load(Ordering::Relaxed);
                    if now_answered == answered || started.elapsed() > MAX_WAIT {
                        return Err(CallError::Unreachable(Unreachable::NoneFree(started.elapsed())));
                    }
                    answered = now_answered;
                }
            }
        }
    }

    /// Like [`call`](Self::call), with the work in one transaction: committed if it succeeds, otherwise rolled back.
    pub(crate) fn transaction<T>(
        &self,
        operation: &'static str,
        work: impl AsyncFnOnce(&mut AsyncPgConnection) -> Result<T, CallError>,
    ) -> impl Future<Output = Result<T, StoreError>> {
        self.run(operation, Kind::Transaction, work, Err)
    }

    /// Like [`fetch`](Self::fetch), with all reads from one snapshot of the database.
    pub(crate) fn snapshot<T>(
        &self,
        operation: &'static str,
        work: impl AsyncFnOnce(&mut AsyncPgConnection) -> Result<T, CallError>,
    ) -> impl Future<Output = Result<T, StoreError>> {
        self.run(operation, Kind::Snapshot, work, Err)
    }

    /// Like [`transaction`](Self::transaction); `meaning` may convert a failure, such as a taken name, to a value after
    /// the rollback.
    pub(crate) fn transaction_or<T>(
        &self,
        operation: &'static str,
        work: impl AsyncFnOnce(&mut AsyncPgConnection) -> Result<T, CallError>,
        meaning: impl FnOnce(CallError) -> Result<T, CallError>,
    ) -> impl Future<Output = Result<T, StoreError>> {
        self.run(operation, Kind::Transaction, work, meaning)
    }

    /// Checks that the database answers.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if it does not, within five seconds.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.run_statement("database.ping", "SELECT 1").await
    }

    /// Checks that the migrated database accepts changes. Writes nothing: a server that only reads refuses the statement
    /// before it looks for rows.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if it does not, within five seconds.
    pub async fn check_writable(&self) -> Result<(), StoreError> {
        self.run_statement("database.check_writable", "UPDATE nodes SET id = id WHERE false").await
    }

    async fn run_statement(&self, operation: &'static str, statement: &'static str) -> Result<(), StoreError> {
        self.fetch(operation, async |connection| {
            diesel_async::RunQueryDsl::execute(diesel::sql_query(statement), connection).await?;
            Ok(())
        })
        .await
    }

    /// Closes the pool: connections in use end with their calls, later calls are unavailable.
    pub fn close(&self) {
        self.pool.close();
    }
}

/// What the statements of a call do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// They only read.
    Read,
    /// One of them changes something, and is committed by itself.
    Change,
    /// They are committed together.
    Transaction,
    /// They only read, from one snapshot.
    Snapshot,
}

/// A call from its begin to its measured end.
struct Call {
    operation: &'static str,
    started: Instant,
    span: Span,
    /// Whether a changing statement, or the commit of a transaction, was sent.
    sent: AtomicBool,
}

impl Call {
    fn begin(operation: &'static str) -> Self {
        let span = tracing::debug_span!("database", otel.name = operation, otel.kind = "client");
        Self { operation, started: Instant::now(), span, sent: AtomicBool::new(false) }
    }

    /// Does what precedes the statements.
    async fn start(&self, connection: &mut AsyncPgConnection, kind: Kind) -> Result<(), CallError> {
        match kind {
            Kind::Read => {}
            Kind::Change => self.sent.store(true, Ordering::Relaxed),
            Kind::Transaction => AnsiTransactionManager::begin_transaction(connection).await?,
            Kind::Snapshot => {
                AnsiTransactionManager::begin_transaction(connection).await?;
                let level = diesel::sql_query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY");
                diesel_async::RunQueryDsl::execute(level, connection).await?;
            }
        }
        Ok(())
    }

    /// Does what follows the statements.
    async fn complete(&self, connection: &mut AsyncPgConnection, kind: Kind, succeeded: bool) -> Result<(), CallError> {
        match kind {
            Kind::Read | Kind::Change => {}
            Kind::Transaction | Kind::Snapshot if succeeded => {
                self.sent.store(kind == Kind::Transaction, Ordering::Relaxed);
                AnsiTransactionManager::commit_transaction(connection).await?;
            }
            Kind::Transaction | Kind::Snapshot => {
                // The first error is returned; a rollback that fails breaks the connection.
                let _reported = AnsiTransactionManager::rollback_transaction(connection).await;
            }
        }
        Ok(())
    }

    fn measure(&self, error: Option<&CallError>) {
        let outcome = error.map_or("ok", CallError::label);
        let labels = [("operation", self.operation), ("outcome", outcome)];
        metrics::histogram!("casement_database_call_seconds", &labels).record(self.started.elapsed().as_secs_f64());
    }

    fn failed(&self, error: CallError) -> StoreError {
        let (operation, outcome) = (self.operation, error.label());
        let error = error.into_store_error(operation, self.sent.load(Ordering::Relaxed));
        tracing::debug!(operation, outcome, error = &error as &dyn std::error::Error, "a database call failed");
        error
    }
}

/// Declares a repository whose only field is the database.
macro_rules! repository {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $name {
            database: $crate::database::Database,
        }

        impl $name {
            /// Creates the repository on this database.
            #[must_use]
            pub fn new(database: $crate::database::Database) -> Self {
                Self { database }
            }
        }
    };
}
pub(crate) use repository;

/// Opens the connections of the pool.
struct Opener {
    address: Address,
    generation: Generation,
    /// The runtime that drives the sockets. The single-threaded runtime of a web worker may stall or end.
    main: Handle,
}

impl Manager for Opener {
    type Type = IdleConnection;
    type Error = ConnectionError;

    async fn create(&self) -> Result<IdleConnection, ConnectionError> {
        let (address, generation) = (self.address.clone(), self.generation.now());
        let slow = |_elapsed| ConnectionError::BadConnection("no answer to the greeting".to_owned());
        let opening = async move {
            let opening = IdleConnection::open(&address, generation);
            tokio::time::timeout(CONNECT_LIMIT, opening).await.map_err(slow)?
        };
        self.main.spawn(opening).await.map_err(|error| ConnectionError::BadConnection(error.to_string()))?
    }

    async fn recycle(&self, connection: &mut IdleConnection, _: &Metrics) -> RecycleResult<ConnectionError> {
        // A lost connection is known to be closed; a query to find out would only cost time.
        if connection.is_lost() {
            return Err(RecycleError::message("the connection was lost"));
        }
        match connection.generation() == self.generation.now() {
            true => Ok(()),
            false => Err(RecycleError::message("a connection that was opened before or after it could only read")),
        }
    }
}

type Pooled = Object<Opener>;

/// A connection that returns to the pool only if its work ran to its end. If the call is dropped early (its caller
/// disconnected, it timed out), the connection is closed.
struct Guard(Option<Pooled>);

impl Guard {
    fn get(&mut self) -> &mut IdleConnection {
        match &mut self.0 {
            Some(connection) => connection,
            None => unreachable!("released only at the end"),
        }
    }

    fn release(mut self) {
        drop(self.0.take());
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(Object::take(connection));
        }
    }
}
