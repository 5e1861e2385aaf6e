//! Measures reads of an administrator: an export of audit records against `COPY … | gzip -1` of the same rows, a chunk
//! from the middle against the first one, and rows per second against PostgreSQL's load generator.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use casement_test_support::program::http::{Answer, Request};
use casement_test_support::program::{Options, Server};
use serde_json::json;

use crate::client;
use crate::commits::Commits;
use crate::machine::{pss_kib, quiet, server_pid};
use crate::progress;
use crate::samples::Samples;
use crate::table::{Limit, Row, Table, ms};

/// The number of audit records, and the variable that overrides it. A million are inserted within seconds.
const RECORDS: u64 = 1_000_000;
const RECORDS_VARIABLE: &str = "CASEMENT_BENCH_RECORDS";
const CHUNK: u64 = 50_000;
const ROUNDS: usize = 7;
const RANGE: &str = "start=2030-01-01&end=2030-02-01";
/// The number of concurrent callers, and the duration of each round.
const CALLERS: usize = 8;
const SECONDS: u64 = 5;
const READING_ROUNDS: usize = 3;

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let commits = Commits::beside(&server)?;
    reading(&server, &commits, table)?;
    let records = std::env::var(RECORDS_VARIABLE).ok().map_or(Ok(RECORDS), |text| text.parse())?;
    ensure!(records >= 2 * CHUNK, "{RECORDS_VARIABLE} is less than two chunks");
    let began = Instant::now();
    commits.ask(&fill(records))?;
    progress(&format!("filled in {records} records in {:.0} s", began.elapsed().as_secs_f64()));
    quiet();
    exporting(&server, &commits, records, table)
}

/// Returns the statements that insert a month of evenly distributed records, like those of browser clients. The
/// partition is filled before it is attached and indexed, which is faster.
fn fill(records: u64) -> String {
    let step = 2_600_000.0 / records as f64;
    format!(
        "CREATE TABLE audit_records_2030_01 (LIKE audit_records INCLUDING DEFAULTS INCLUDING CONSTRAINTS);
         INSERT INTO audit_records_2030_01
         SELECT gen_random_uuid(), o.id, timestamptz '2030-01-01Z' + n * interval '{step} s', 'api_key', 'api',
                '01ka' || lpad((n % 37)::text, 22, '0'), 'person' || n % 37 || '@casement.example', k.id, p.id,
                '192.0.2.' || n % 250, 'casement.example:8080',
                CASE WHEN n % 100000 = 9 THEN 'PATCH' ELSE (ARRAY['GET', 'POST', 'GET', 'DELETE'])[n % 4 + 1] END,
                CASE n % 5 WHEN 0 THEN '/browser_pools/default/acquire'
                           ELSE '/browsers/01ka' || substr(md5((n / 6)::text), 1, 22) || '/computer/screenshot' END,
                CASE n % 5 WHEN 0 THEN '/browser_pools/{{id_or_name}}/acquire' ELSE '/browsers/{{id}}/computer/screenshot' END,
                CASE WHEN n % 200 = 0 THEN 404 ELSE 200 END, n % 300, 'Kernel/Python 0.80.0'
         FROM generate_series(1, {records}) AS n, organizations AS o, projects AS p, api_keys AS k WHERE p.is_default;
         ALTER TABLE audit_records ATTACH PARTITION audit_records_2030_01 FOR VALUES FROM ('2030-01-01Z') TO ('2030-02-01Z');
         ANALYZE audit_records_2030_01;"
    )
}

fn exporting(server: &Server, commits: &Commits, records: u64, table: &mut Table) -> anyhow::Result<()> {
    let pid = server_pid(&server.data_dir())?;
    chunk(server, None)?;
    let before = pss_kib(pid)?;
    let middle = cursor_at(server, records / 2)?;
    let after = pss_kib(pid)?;
    let (mut first, mut later, mut copied, mut sizes) = (Samples::default(), Samples::default(), Samples::default(), 0);
    for _ in 0..ROUNDS {
        sizes = first.time(|| chunk(server, None))?.body.len();
        later.time(|| chunk(server, Some(&middle)))?;
        copied.time(|| copy(commits))?;
    }
    let (ours, theirs, later) = (first.p50(), copied.p50(), later.p50());
    let what = format!(
        "export of {CHUNK} of {records} audit records, {:.1} MB packed, median of {ROUNDS}",
        sizes as f64 / 1e6
    );
    let row = Row::new(what, ms(ours)).against(format!("COPY … to gzip -1, {}", ms(theirs)), ours / theirs);
    table.add(row.target("≤ ×1.5", ours / theirs, Limit::Most(1.5)));
    let row =
        Row::new("the same from the middle", ms(later)).against(format!("the newest, {}", ms(ours)), later / ours);
    table.add(row.target("≤ ×1.3", later / ours, Limit::Most(1.3)));
    let grown = (after as f64 - before as f64) / 1024.0;
    let what = format!("the server's memory after {} chunks, PSS", records / 2 / CHUNK);
    let row = Row::new(what, format!("{:.1} MiB", after as f64 / 1024.0));
    let row = row.beside(format!("after the first one, {:.1} MiB", before as f64 / 1024.0));
    table.add(row.target("flat: + ≤ 5 MiB", grown, Limit::Most(5.0)));
    Ok(())
}

fn chunk(server: &Server, cursor: Option<&str>) -> anyhow::Result<Answer> {
    let cursor = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
    let path = format!("/audit-logs/export/chunk?{RANGE}&limit={CHUNK}{cursor}");
    let answer = Request::new("GET", &path).bearer(server.key()).send(server.address())?.expect(200)?;
    ensure!(answer.header("x-record-count") == Some(&CHUNK.to_string()), "another chunk: {:?}", answer.headers);
    Ok(answer)
}

/// Returns the position of a reader after this many records, chunk by chunk.
fn cursor_at(server: &Server, records: u64) -> anyhow::Result<String> {
    let mut cursor = None;
    for _ in 0..records / CHUNK {
        let answer = chunk(server, cursor.as_deref())?;
        cursor = Some(answer.header("x-next-cursor").context("no older records")?.to_owned());
    }
    cursor.context("no chunk")
}

/// Exports the same rows with PostgreSQL itself, compressed.
fn copy(commits: &Commits) -> anyhow::Result<()> {
    let rows = format!(
        "COPY (SELECT * FROM audit_records WHERE at >= '2030-01-01Z' AND at < '2030-02-01Z' ORDER BY at DESC, id DESC LIMIT {CHUNK}) TO STDOUT"
    );
    let mut copy = commits.psql(&rows).stdout(Stdio::piped()).spawn().context("cannot start psql")?;
    let rows = copy.stdout.take().context("no output")?;
    let mut gzip = Command::new("gzip").arg("-1").stdin(rows).stdout(Stdio::piped()).spawn().context("no gzip")?;
    let packed = std::io::copy(&mut gzip.stdout.take().context("no output")?, &mut std::io::sink())?;
    ensure!(copy.wait()?.success() && gzip.wait()?.success() && packed > 1 << 16, "{packed} bytes were copied");
    Ok(())
}

/// Measures requests that read one row. The key and the project need a statement each.
fn reading(server: &Server, commits: &Commits, table: &mut Table) -> anyhow::Result<()> {
    let made = server.post("/org/projects", &json!({ "name": "bench" }))?.expect(201)?.json()?;
    let one = format!("/org/projects/{}", made["id"].as_str().context("no id")?);
    commits.pgbench(&["--initialize", "--quiet", "--scale=10"])?;
    let mut paths = vec![("an authenticated read of one row", one)];
    if server.get("/profiles")?.status == 200 {
        paths.push(("GET /profiles", "/profiles".to_owned()));
    }
    for (what, path) in paths {
        let (mut ours, mut theirs, mut prepared) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..READING_ROUNDS {
            quiet();
            ours.push(rate(server, &path)?);
            theirs.push(pgbench_rate(commits, "simple")?);
            prepared.push(pgbench_rate(commits, "prepared")?);
        }
        let (ours, theirs, prepared) = (median(ours), median(theirs), median(prepared));
        let what = format!("{what}, {CALLERS} callers, median of {READING_ROUNDS}");
        let row = Row::new(what, format!("{ours:.0}/s")).against(format!("pgbench -S, {theirs:.0}/s"), ours / theirs);
        table.add(row.target("≥ ×0.3", ours / theirs, Limit::Least(0.3)));
        let row = Row::new("the same", format!("{ours:.0}/s"));
        table.add(row.against(format!("pgbench -S -M prepared, {prepared:.0}/s"), ours / prepared));
    }
    Ok(())
}

/// Returns the transactions per second of [`CALLERS`] clients, with this query mode.
fn pgbench_rate(commits: &Commits, protocol: &str) -> anyhow::Result<f64> {
    let [protocol, clients, time] =
        [format!("--protocol={protocol}"), format!("--client={CALLERS}"), format!("--time={SECONDS}")];
    let output = commits.pgbench(&["--select-only", "--jobs=2", &protocol, &clients, &time])?;
    transactions(&output).with_context(|| format!("pgbench said {output}"))
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

/// Parses the line `tps = 12345.678 (without initial connection time)`.
fn transactions(output: &str) -> Option<f64> {
    output.lines().find_map(|line| line.strip_prefix("tps = "))?.split(' ').next()?.parse().ok()
}

/// Returns the responses per second to clients that send each request directly after the previous response.
fn rate(server: &Server, path: &str) -> anyhow::Result<f64> {
    let request = client::request(server.address(), server.key(), "GET", path, None);
    let ends = Instant::now() + Duration::from_secs(SECONDS);
    let caller = || -> anyhow::Result<u64> {
        let mut stream = TcpStream::connect(server.address())?;
        stream.set_nodelay(true)?;
        let (mut buffer, mut answered) = ([0; 16 * 1024], 0);
        while Instant::now() < ends {
            stream.write_all(&request)?;
            read_answer(&mut stream, &mut buffer)?;
            answered += 1;
        }
        Ok(answered)
    };
    let began = Instant::now();
    let counts: Vec<_> = thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(caller)).collect();
        callers.into_iter().map(|caller| caller.join().map_err(|_| anyhow!("a caller panicked"))).collect()
    });
    let mut all = 0;
    for count in counts {
        all += count??;
    }
    Ok(all as f64 / began.elapsed().as_secs_f64())
}

/// Reads one successful response with a length, with as little work as possible.
fn read_answer(stream: &mut TcpStream, buffer: &mut [u8]) -> anyhow::Result<()> {
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..])?;
        ensure!(read > 0, "the connection was closed");
        filled += read;
        let text = &buffer[..filled];
        let Some(end) = text.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        ensure!(text.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(text));
        let head = std::str::from_utf8(&text[..end])?;
        let length = head.split("\r\n").find_map(|line| line.strip_prefix("content-length: ")).context("no length")?;
        if filled >= end + 4 + length.parse::<usize>()? {
            return Ok(());
        }
    }
}
