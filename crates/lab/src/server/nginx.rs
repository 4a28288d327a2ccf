//! nginx as the server, with a minimal configuration of our own.

use std::fs::{self, File};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use record::WorkloadKind;

use super::Secret;
use super::ServerSetup;
use crate::{LabError, nginx};

/// Writes the configuration and what it names; the arguments that say where it is.
///
/// The answer is made in memory; its header is filled up to what a small static file gets, so that a body of 100 bytes
/// makes about 350 on the wire, as in the published comparisons. The objects of downloads, and answers where files are
/// asked for, are files, which go out by sendfile.
pub(super) fn args(setup: &ServerSetup<'_>) -> Result<Vec<String>, LabError> {
    nginx::args(setup.dir, &config(setup)?)
}

fn config(setup: &ServerSetup<'_>) -> Result<String, LabError> {
    let (workers, http) = (nginx::workers(setup.dir, setup.cpus, setup.connections), nginx::http(setup.dir));
    let (listeners, locations, tls) = (listeners(setup), locations(setup)?, tls(setup));
    Ok(format!(
        "{workers}http {{
{http}  default_type text/plain;
{tls}  server {{
{listeners}{locations}  }}
}}
"
    ))
}

fn listeners(setup: &ServerSetup<'_>) -> String {
    let ssl = if setup.secret.is_some() { "ssl " } else { "" };
    let listener = |address: IpAddr| {
        let at = SocketAddr::new(address, setup.port);
        format!("    listen {at} {ssl}reuseport backlog=4096;\n")
    };
    setup.addresses().into_iter().map(listener).collect()
}

/// The lines on TLS: certificate and key, and whether a connection may resume the session of an earlier one.
fn tls(setup: &ServerSetup<'_>) -> String {
    let Some(Secret { chain, key }) = setup.secret else { return String::new() };
    let sessions = if setup.workload.reuses_sessions() {
        "ssl_session_cache shared:hostgap:10m;\n  ssl_session_timeout 1h;\n  ssl_session_tickets on;"
    } else {
        "ssl_session_cache off;\n  ssl_session_tickets off;"
    };
    format!(
        "  ssl_certificate {};\n  ssl_certificate_key {};\n  ssl_protocols TLSv1.2 TLSv1.3;\n  {sessions}\n",
        chain.display(),
        key.display()
    )
}

fn locations(setup: &ServerSetup<'_>) -> Result<String, LabError> {
    let sizes = &setup.workload.body_bytes;
    if setup.workload.kind == WorkloadKind::Download || setup.workload.files {
        let objects = setup.dir.join("objects");
        fs::create_dir_all(&objects).map_err(LabError::file("create", &objects))?;
        for size in sizes {
            object(setup.dir, *size)?;
        }
        let root = objects.display();
        return Ok(format!("    sendfile on;\n    tcp_nopush on;\n    root {root};\n"));
    }
    let like_a_file = "    add_header Last-Modified \"Thu, 01 Jan 2015 00:00:00 GMT\";
    add_header ETag \"\\\"54a48e00-64\\\"\";
    add_header Accept-Ranges bytes;\n";
    let answers = sizes.iter().map(|size| location(*size as usize));
    Ok(std::iter::once(like_a_file.to_owned()).chain(answers).collect())
}

/// An object in memory: directories of races are in a tmpfs. Those of other candidates are the same file, because each
/// takes as much memory as it is long. It is written whole, since a hole would be read from one page of zeros that
/// every cache holds.
fn object(dir: &Path, size: u32) -> Result<(), LabError> {
    let name = Path::new("objects").join(size.to_string());
    let path = dir.join(&name);
    let siblings = dir.parent().and_then(|parent| fs::read_dir(parent).ok()).into_iter().flatten().flatten();
    let is_whole = |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.len() == u64::from(size));
    let found =
        siblings.map(|sibling| sibling.path().join(&name)).find(|other| *other != path && is_whole(other));
    if let Some(other) = found {
        return fs::hard_link(&other, &path).map_err(LabError::file("link", &path));
    }
    let chunk = vec![b'x'; CHUNK_BYTES * 500];
    let mut file = File::create(&path).map_err(LabError::file("create", &path))?;
    let mut left = size as usize;
    while left > 0 {
        let bytes = left.min(chunk.len());
        file.write_all(&chunk[..bytes]).map_err(LabError::file("write", &path))?;
        left -= bytes;
    }
    Ok(())
}

/// The answer of a size. A word of nginx's configuration must be shorter than 4 KiB (`NGX_CONF_BUFFER`), so a longer
/// body is written as repetitions of `$k`, and of `$m`, which is as many of those. Each request puts it together.
fn location(size: usize) -> String {
    let (chunks, rest) = (size / CHUNK_BYTES, size % CHUNK_BYTES);
    let (many, few) = (chunks / CHUNKS, chunks % CHUNKS);
    let mut lines = String::new();
    if chunks > 0 {
        lines += &format!("set $k \"{}\"; ", "x".repeat(CHUNK_BYTES));
    }
    if many > 0 {
        lines += &format!("set $m \"{}\"; ", "$k".repeat(CHUNKS));
    }
    let body = "x".repeat(rest) + &"$k".repeat(few) + &"$m".repeat(many);
    format!("    location = /{size} {{ {lines}return 200 \"{body}\"; }}\n")
}

/// The length of `$k`.
const CHUNK_BYTES: usize = 2000;
/// How many of those `$m` is.
const CHUNKS: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_body_is_made_of_short_words() {
        for size in [0, 100, 1999, 2000, 4096, 1 << 20, 3_001_999, 8 << 20, 15_999_999, 16 << 20] {
            let location = location(size);
            let words: Vec<&str> = location.split('"').skip(1).step_by(2).collect();
            assert!(words.iter().all(|word| word.len() < 4094), "{size}");
            let whole = words.iter().fold(String::new(), |_, word| word.replace("$m", &"$k".repeat(CHUNKS)));
            assert_eq!(whole.replace("$k", &"x".repeat(CHUNK_BYTES)), "x".repeat(size));
        }
    }

    #[test]
    fn candidates_share_the_memory_of_an_object() {
        use std::os::unix::fs::MetadataExt;

        let root = tempfile::tempdir().unwrap();
        let dirs = ["a", "b"].map(|name| root.path().join(name));
        for dir in &dirs {
            fs::create_dir_all(dir.join("objects")).unwrap();
            object(dir, 3_000_001).unwrap();
        }
        let [a, b] = dirs.map(|dir| fs::metadata(dir.join("objects/3000001")).unwrap());
        assert_eq!((a.len(), a.ino()), (3_000_001, b.ino()));
    }
}
