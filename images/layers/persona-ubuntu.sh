# on: base
make_user ubuntu /vercel /vercel
login_shells
