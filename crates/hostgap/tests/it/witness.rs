//! What the witness of the machine's stalls excuses, and what it does not.

use rustix::process::Signal;
use serde_json::Value;

use crate::load::{end, serve};
use crate::sandbox::{Sandbox, json, sandbox};

/// A run of two seconds in which the CPUs were available for at least a thousand requests.
fn witnessed(sandbox: &Sandbox, url: &str) -> Value {
    let args = ["--rate", "1000", "--duration", "2s", "--warmup", "0s", "--timeout", "10s", "--json"];
    loop {
        let value = json(&sandbox.hostgap(&[&["load", url], &args[..]].concat()));
        let seen = &value["witnessed"];
        assert!(seen["intended"].as_u64() <= value["intended"].as_u64(), "{value}");
        assert!(seen["left_out_ns"].as_u64() <= Some(2_000_000_000), "{value}");
        if !seen["response_ns"]["p99"].is_null() {
            return value;
        }
    }
}

#[test]
fn a_server_that_is_slow_at_times_is_not_excused() {
    let sandbox = sandbox();
    for (delay, ns) in
        [("98%:0ms,2%:200us", 200_000), ("98%:0ms,2%:1ms", 1_000_000), ("98%:0ms,2%:5ms", 5_000_000)]
    {
        let (server, url) = serve(&sandbox, &["--delay", delay]);
        let value = witnessed(&sandbox, &url);
        let p99 = value["witnessed"]["response_ns"]["p99"].as_u64();
        assert!(p99 >= Some(ns), "{delay}: {value}");
        end(server, Signal::TERM);
    }
}

#[test]
fn a_server_that_stands_still_by_itself_is_not_excused() {
    let sandbox = sandbox();
    // A tenth of the requests wait for up to 40 ms, and so a hundredth for more than 36.
    let (server, url) = serve(&sandbox, &["--freeze", "40ms/400ms"]);
    let value = witnessed(&sandbox, &url);
    assert!(value["witnessed"]["response_ns"]["p99"].as_u64() > Some(20_000_000), "{value}");
    end(server, Signal::TERM);
}

#[test]
fn nothing_watches_where_it_is_not_wanted() {
    let sandbox = sandbox();
    let (server, url) = serve(&sandbox, &[]);
    let run = |args: &[&str]| {
        let usual = ["--duration", "100ms", "--warmup", "0s", "--timeout", "10s", "--json"];
        json(&sandbox.hostgap(&[&["load", &url], &usual[..], args].concat()))["witnessed"].clone()
    };
    assert!(run(&["--rate", "1000"]).is_object());
    assert!(run(&["--rate", "1000", "--no-witness"]).is_null());
    assert!(run(&["--rate", "max"]).is_null(), "without a rate no request is due at an instant");
    end(server, Signal::TERM);
}
