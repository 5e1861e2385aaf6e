//! Tests of the rights of compromised renderers and browsers.

use std::fs;
use std::process::Command;

use anyhow::ensure;
use casement_test_support::program::{Cdp, Process, processes_of, until};
use serde_json::json;

use super::host::{browser_of, chromium, kind, sandbox};
use super::isolation::{Place, TEST_TIMEOUT, Visit, first_process, place, shown};

/// Returns a field of `/proc/<pid>/status`, or `None` once the process has ended.
fn status(process: &Process, field: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{}/status", process.pid)).ok()?;
    let of = |field| text.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    let ended = of("State:").trim().starts_with(['Z', 'X']);
    (!ended).then(|| of(field).trim_start_matches(':').trim().to_owned())
}

#[test]
fn chromiums_own_sandbox_is_on_and_no_process_has_a_capability() -> anyhow::Result<()> {
    let Place { server, site } = place();
    for body in [json!({ "headless": true }), json!({})] {
        let session = server.create(&body)?;
        let mut visit = Visit::of(&session, site)?;
        let text = shown(&mut visit, "chrome://sandbox/")?;
        assert!(text.contains("You are adequately sandboxed."), "{text}");
        visit.client.open(&visit.page.clone(), &site.url("/"))?;

        let browser = browser_of(server, &session)?;
        // A spare renderer may have just started, so the test waits for its filters.
        let all = until("Chromium's own filter stands behind the sandbox's in every renderer", TEST_TIMEOUT, || {
            let all = chromium(server, &browser).ok()?;
            let renderers = all.iter().filter(|process| kind(process) == Some("renderer"));
            let filters: Vec<String> = renderers.filter_map(|one| status(one, "Seccomp_filters")).collect();
            let both = |count: &String| count.parse::<u32>().is_ok_and(|count| count > 1);
            (!filters.is_empty() && filters.iter().all(both)).then_some(all)
        })?;
        let namespace = |process: &Process| fs::read_link(format!("/proc/{}/ns/user", process.pid)).ok();
        let outermost = namespace(&all[0]);
        for process in all.iter().chain(&processes_of(&sandbox(server, &browser))) {
            // Chromium's zygote creates namespaces for its children, and has all capabilities in them.
            if namespace(process) == outermost || kind(process) == Some("renderer") {
                let capabilities = status(process, "CapEff");
                assert!(capabilities.is_none_or(|all| all == "0000000000000000"), "{:?}", process.argv);
            }
            assert!(status(process, "NoNewPrivs").is_none_or(|set| set == "1"), "{:?}", process.argv);
            let users = status(process, "Uid").unwrap_or_else(|| "1000".to_owned());
            let root = users.is_empty() || users.split_whitespace().any(|uid| uid == "0");
            assert!(!root, "{:?} runs as root", process.argv);
        }
        server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    }
    Ok(())
}

/// Runs a shell inside a session, like an attacker who controls the whole browser.
fn inside(process: &Process, script: &str) -> anyhow::Result<String> {
    let target = process.pid.to_string();
    let own = ["--user", "--mount", "--pid", "--net", "--ipc", "--uts", "--setuid", "1000", "--setgid", "1000"];
    let output = Command::new("nsenter")
        .args(["--target", &target])
        .args(own)
        .args(["--", "/bin/sh", "-c", script])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .output()?;
    ensure!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[test]
fn a_taken_over_browser_sees_nothing_of_the_host_or_of_another_session() -> anyhow::Result<()> {
    let Place { server, .. } = place();
    let (session, other) = (server.headless()?, server.headless()?);
    let process = first_process(server, &session)?;
    let mut client = Cdp::connect(other.text("cdp_ws_url"))?;
    assert!(client.page().is_ok(), "there is somebody to look for");

    let processes = inside(&process, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")?;
    assert!(processes.contains("/chromium"), "it sees its own: {processes}");
    for other in [" serve --listen", "postgres:", &browser_of(server, &other)?] {
        assert!(!processes.contains(other), "it sees others: {processes}");
    }
    let places = "ls -d /tmp/casement-e2e-* /run/casement-* /var/run/docker.sock /root /var/lib 2>/dev/null; true";
    assert_eq!(inside(&process, places)?, "");
    let devices = inside(&process, "sed 1,2d /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort | tr '\\n' ' '")?;
    assert_eq!(devices, "eth0 eth0-end lo", "no network but its own");
    assert_eq!(inside(&process, "sed 1d /proc/net/route")?, "", "no route leads anywhere");
    // The device by which pages are online, named by the sender, and addresses of others in its block.
    let sent = r#"perl -MIO::Socket::INET -e '
        for my $from ("0.0.0.0", "192.0.2.1") { for my $to ("192.0.2.2", "10.0.0.1", "169.254.169.254", "1.1.1.1") {
            for my $protocol ("udp", "tcp") {
                my $socket = IO::Socket::INET->new(LocalAddr => $from, PeerAddr => $to, PeerPort => 53, Proto => $protocol, Timeout => 2);
                print "$from $to $protocol\n" if $socket && ($protocol eq "tcp" || $socket->send("x"));
            }
        } }'"#;
    assert_eq!(inside(&process, sent)?, "", "nothing leaves by it");
    let secrets = "for file in /etc/shadow /etc/ssh /root /proc/sysrq-trigger /dev/mem /dev/sda; do
        { cat $file || ls $file; } >/dev/null 2>&1 && echo $file; done; true";
    assert_eq!(inside(&process, secrets)?, "");
    let environment =
        inside(&process, "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | cut -d= -f1 | sort -u; true")?;
    for name in ["CASEMENT", "CARGO", "DATABASE", "PGPASS", "SUDO", "SSH"] {
        assert!(!environment.contains(name), "{environment}");
    }
    let writable = "for dir in / /usr /etc /bin /run/casement /run/casement/egress /dev /proc/sys; do
        (: > $dir/canary) 2>/dev/null && echo $dir; done; true";
    assert_eq!(inside(&process, writable)?, "", "nothing of the system can be changed");
    let mounts = inside(&process, "cat /proc/self/mountinfo")?;
    for elsewhere in [browser_of(server, &other)?, "/postgres".to_owned(), "docker".to_owned()] {
        assert!(!mounts.contains(&elsewhere), "{mounts}");
    }
    for session in [session, other] {
        server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    }
    Ok(())
}
