# on: python base
apt_layer python3-numpy python3-pandas python3-matplotlib
