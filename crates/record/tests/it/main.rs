//! Record files on a real disk: written, read, cut, damaged.

#[cfg(test)]
mod made;
#[cfg(test)]
mod record_file;
