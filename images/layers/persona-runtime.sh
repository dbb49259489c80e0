# on: base
make_user vercel-sandbox /home/vercel-sandbox /vercel/sandbox
login_shells
no_dnf
