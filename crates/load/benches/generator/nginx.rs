//! nginx as the server, compared with our responder.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cpu_pair::CpuPair;
use crate::figures::Series;
use crate::{CONNECTIONS, Failure, ROUNDS, SLICE, floor};

/// Runs `work` while nginx, if it is installed, answers with 100 bytes at `/` and `/100`.
pub(crate) fn with_nginx(
    cpus: &CpuPair,
    work: impl FnOnce(SocketAddr) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let program = std::env::var_os("HOSTGAP_NGINX").map_or_else(|| PathBuf::from("nginx"), PathBuf::from);
    let dir = std::env::temp_dir().join(format!("hostgap-bench-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    // The port is free now; another program is unlikely to take it in the next milliseconds.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let configuration = dir.join("nginx.conf");
    fs::write(&configuration, self::configuration(address, &dir.display().to_string()))?;
    fs::write(dir.join("100"), vec![b'x'; 100])?;
    let started = cpus.on_server(|| {
        let mut command = Command::new(&program);
        command.arg("-c").arg(&configuration).arg("-e").arg(dir.join("error.log"));
        Ok(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn())
    })?;
    let result = match started {
        Ok(mut nginx) => {
            let done = wait_for(address).and_then(|()| work(address));
            stop(&mut nginx)?;
            done
        }
        Err(error) => {
            println!("\nskipped: {} could not be started: {error}", program.display());
            Ok(())
        }
    };
    fs::remove_dir_all(&dir)?;
    result
}

fn configuration(address: SocketAddr, dir: &str) -> String {
    format!(
        "daemon off; master_process off; worker_processes 1; pid {dir}/pid; error_log {dir}/error.log crit;
events {{ worker_connections 4096; }}
http {{
    access_log off; keepalive_requests 1000000000; keepalive_timeout 1h; sendfile off; tcp_nodelay on;
    client_body_temp_path {dir}; proxy_temp_path {dir}; fastcgi_temp_path {dir}; uwsgi_temp_path {dir};
    scgi_temp_path {dir};
    server {{ listen {address}; root {dir}; index 100; }}
}}
"
    )
}

fn wait_for(address: SocketAddr) -> Result<(), Failure> {
    let deadline = Instant::now() + Duration::from_secs(5);
    while TcpStream::connect(address).is_err() {
        if Instant::now() > deadline {
            return Err("nginx does not answer".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn stop(nginx: &mut Child) -> Result<(), Failure> {
    nginx.kill()?;
    nginx.wait()?;
    Ok(())
}

/// How many requests a server answers to the minimal generator.
pub(crate) fn compare(cpus: &CpuPair, nginx: SocketAddr) -> Result<(), Failure> {
    cpus.with_responder(|ours| {
        for depth in [1, 16] {
            println!(
                "\nrequests/s of a server on one CPU, {depth} open on each of {CONNECTIONS} connections"
            );
            let mut own = Series::new("hostgap serve");
            let mut other = Series::new("nginx");
            for _ in 0..ROUNDS {
                own.push(cpus.on_client(|| floor::saturate(ours, CONNECTIONS, depth, SLICE))?.per_s);
                other.push(cpus.on_client(|| floor::saturate(nginx, CONNECTIONS, depth, SLICE))?.per_s);
            }
            own.print("", &own);
            other.print("", &own);
        }
        Ok(())
    })
}
