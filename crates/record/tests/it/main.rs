//! Record files on a real disk: written, read, truncated and damaged.

#[cfg(test)]
mod made;
#[cfg(test)]
mod record_file;
#[cfg(test)]
mod several_clients;
